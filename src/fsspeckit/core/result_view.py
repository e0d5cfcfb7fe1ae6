"""How results are shown: as a mapping of JSON types, as text and as HTML tables. Nothing here reads storage."""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

from fsspeckit.common.text import counted, printable

SHOWN_FILES = 10
"""So many files a result or plan shows; its JSON has all."""
FILE_HEADS = ("action", "file", "reason", "rows", "size")
FileRow = tuple[str, str, str, str, str]


class ResultMapping(Mapping[str, Any]):
    """A result as a mapping from names to JSON types.

    Subclasses are dataclasses with ``eq=False``: a result equals a result of the same class with the same fields, and
    any mapping with the same items. Like a dictionary it has no hash.
    """

    __slots__ = ()

    def _names(self) -> tuple[str, ...]:
        """Return the keys in order. Each is an attribute."""
        return tuple(each.name for each in fields(self))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dictionary of JSON types."""
        return dict(self)

    def __getitem__(self, key: str) -> Any:
        if key not in self._names():
            raise KeyError(key)
        return plain(getattr(self, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return Mapping.__eq__(self, other)
        compared = [each.name for each in fields(self) if each.compare]  # type: ignore[arg-type]
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the fields of the result. Lists and mappings are shortened: a dataset can have very many files."""
        shown = (f"{each.name}={_short(getattr(self, each.name))}" for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


class ResultView(ResultMapping):
    """A result that is shown as a table, as text and in a notebook."""

    __slots__ = ()

    @abstractmethod
    def _lines(self) -> list[tuple[str, str]]: ...

    def _files(self) -> tuple[Sequence[FileRow], int]:
        """Return the first `SHOWN_FILES` files that a plan names, and the number of all; a result names none."""
        return (), 0

    def _more(self, shown: int, total: int) -> str:
        return f"... and {counted(total - shown, 'more file')}" if total > shown else ""

    def __str__(self) -> str:
        rows, total = self._files()
        table = columns(_filled(rows)) if rows else ""
        return "\n".join(part for part in (render(self._lines()), table, self._more(len(rows), total)) if part)

    def _repr_html_(self) -> str:
        rows, total = self._files()
        cells = "".join(
            f"<tr><th style='text-align:left'>{quoted(name)}</th><td>{quoted(value)}</td></tr>"
            for name, value in self._lines()
        )
        more = self._more(len(rows), total)
        head, *filled = _filled(rows)
        return f"<table>{cells}</table>" + (html_table(head, filled) if rows else "") + (more and f"<p>{more}</p>")


def below(root: str, path: str) -> str:
    """Return the path of a file as plans show it, relative to its dataset.

    Examples:
        >>> below("/lake/orders", "/lake/orders/day=mon/a.parquet")
        'day=mon/a.parquet'
    """
    return path.removeprefix(f"{root}/")


def _filled(rows: Sequence[FileRow]) -> list[tuple[str, ...]]:
    """Return a table of files with its head, without columns that have no value."""
    used = [at for at in range(len(FILE_HEADS)) if any(row[at] for row in rows)]
    return [tuple(row[at] for at in used) for row in (FILE_HEADS, *rows)]


def _short(value: Any) -> str:
    """Return the repr of a value; a long list or mapping ends with the number of items that are left out."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | Mapping) or len(value) <= SHOWN_FILES:
        return repr(value)
    first = list(islice(value.items() if isinstance(value, Mapping) else value, SHOWN_FILES))
    shown = repr(dict(first) if isinstance(value, Mapping) else first)
    return f"{shown[:-1]}, ... and {len(value) - SHOWN_FILES:,} more{shown[-1]}"


def plain(value: Any) -> Any:
    """Return a value as JSON types."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return [plain(each) for each in value] if is_list else value


def render(lines: Sequence[tuple[str, str]]) -> str:
    """Return names and values as text in two aligned columns."""
    return columns(lines)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text with aligned columns. Characters that are not printable are escaped."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in shown)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as an HTML table."""
    heads = "".join(f"<th style='text-align:left'>{quoted(name)}</th>" for name in head)
    lines = ("".join(f"<td>{quoted(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def quoted(text: str) -> str:
    """Return a text escaped for HTML."""
    return html.escape(printable(text))


def readable_bytes(size: int) -> str:
    """Return a number of bytes as text with a unit."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
