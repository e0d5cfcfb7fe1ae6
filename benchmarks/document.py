"""Insert measured tables into a page of the documentation, between two marks."""

from __future__ import annotations

from pathlib import Path

_BEGIN, _END = "<!-- results -->", "<!-- end of results -->"


def replace_results(path: Path, tables: str) -> None:
    """Replace the text between the marks."""
    head, _, rest = path.read_text().partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    path.write_text(f"{head}{_BEGIN}\n\n{tables}\n{_END}{tail}")
