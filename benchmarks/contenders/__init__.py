"""The contenders: one module per tool, one function per operation."""
