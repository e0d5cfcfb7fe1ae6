"""One module for each command: its options, and one call of the library."""
