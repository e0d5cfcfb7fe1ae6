"""One file for each operation: validate, snapshot, plan, run, commit."""
