"""Escape control characters in text that is shown to users, such as names of files, columns and partitions."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""Escape characters that are not printable: control characters, line ends, marks that change the text direction.

    Args:
        text: Any text.
        keep: Characters that are not escaped, such as line ends in a text of several lines.

    Example:
        >>> printable("a\x1b[31m\n.parquet")
        'a\\x1b[31m\\n.parquet'
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)
