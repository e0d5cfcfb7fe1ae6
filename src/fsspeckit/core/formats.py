"""The formats of source files, by file extension. The module imports no format library, so it loads fast."""

from __future__ import annotations

from fsspeckit.common.choices import SourceFormat

ENDINGS: dict[SourceFormat, tuple[str, ...]] = {
    "parquet": (".parquet", ".parq", ".pq"),
    "csv": (".csv", ".tsv"),
    "json": (".json", ".jsonl", ".ndjson"),
}
"""File extensions of each format."""
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Extensions of compressed files, after that of the format, and their codecs."""

USUAL_DELIMITERS = ";\t|,"
"""Characters that often separate the values of a csv file, the most likely one first."""


def can_delimit(text: str) -> bool:
    """Whether a text can be between two values of a csv file."""
    return len(text) == 1 and text.isascii() and text not in '"\r\n\0'


def plain_name(path: str) -> str:
    """Return a path in lower case without the extension of a compressed file."""
    name = path.lower()
    return next((name.removesuffix(ending) for ending in COMPRESSED if name.endswith(ending)), name)


def format_of(path: str) -> SourceFormat | None:
    """Return the format of a file or pattern by its extension, compressed or not; ``None`` if it is unknown.

    Examples:
        >>> format_of("in/orders-*.CSV.gz"), format_of("lake/orders")
        ('csv', None)
    """
    name = plain_name(path)
    return next((format_ for format_, endings in ENDINGS.items() if name.endswith(endings)), None)
