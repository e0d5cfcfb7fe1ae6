"""Text for people: names of files, columns and partitions may hold characters that control a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""Escape what is not printable: control characters, line ends, characters that change the direction of text.

    Args:
        text: Any text.
        keep: Characters that stay as they are, such as a line end in a text of several lines.

    Example:
        >>> printable("a\x1b[31m\n.parquet")
        'a\\x1b[31m\\n.parquet'
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)
