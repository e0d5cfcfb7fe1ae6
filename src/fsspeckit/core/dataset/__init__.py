"""A dataset and a source of rows: where they are and what they hold."""
