"""The formats of source files, by the endings of their names. It imports nothing, so that asking costs nothing."""

from __future__ import annotations

from fsspeckit.common.choices import SourceFormat

ENDINGS: dict[SourceFormat, tuple[str, ...]] = {
    "parquet": (".parquet", ".parq", ".pq"),
    "csv": (".csv", ".tsv"),
    "json": (".json", ".jsonl", ".ndjson"),
}
"""How the names of each format's files end."""
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Endings of compressed files, after that of the format, with the codec."""


def can_delimit(text: str) -> bool:
    """Whether a text can be between two values of a csv file."""
    return len(text) == 1 and text.isascii() and text not in '"\r\n\0'


def plain_name(path: str) -> str:
    """A path in lower case without the ending of a compressed file."""
    name = path.lower()
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def format_of(path: str) -> SourceFormat | None:
    """The format that the name of a file or a pattern tells, compressed or not.

    Example:
        >>> format_of("in/orders-*.CSV.gz"), format_of("lake/orders")
        ('csv', None)
    """
    name = plain_name(path)
    return next((format_ for format_, endings in ENDINGS.items() if name.endswith(endings)), None)
