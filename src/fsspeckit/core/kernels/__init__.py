"""What runs on a worker: one file or one part of an exchange at a time."""
