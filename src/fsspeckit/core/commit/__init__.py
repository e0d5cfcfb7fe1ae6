"""The commit: the only writer of a dataset folder."""
