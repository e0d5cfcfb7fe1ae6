"""Dataset folders, one engine in each sub-package."""
