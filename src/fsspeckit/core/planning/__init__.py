"""Plans: which files an operation changes, and why. Writes nothing."""
