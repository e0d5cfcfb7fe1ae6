"""The contenders: one module each, one function per kind of work."""
