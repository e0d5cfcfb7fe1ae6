"""Show sample rows of a planned change before and after it: as text, and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsspeckit.common.text import printable
from fsspeckit.core.operations.row_sample import Row, RowSample
from fsspeckit.core.result_view import ResultView, columns, quoted

_WIDEST = 40
_BEFORE = 10
"""So many characters before a difference are shown."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --page: #fbfbf9; --faint: #c9ced3; --old: #ffe0da; --new: #d6f2e0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --page: #14171a; --faint: #444c54; --old: #5a231a; --new: #17452b; }
}
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; white-space: nowrap; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--faint); }
td.old { background: var(--old); } td.new { background: var(--new); }
"""


def render_sample(sample: RowSample) -> str:
    """Return a sample as text: a line with - for each row before the change, with + for each row after it."""
    if sample.is_empty:
        return "no row changes" + _rest(sample)
    lines = [("", *sample.columns)]
    for old, new in sample.updated:
        lines += [("-", *_texts(old, sample, new)), ("+", *_texts(new, sample, old))]
    lines += [("-", *_texts(row, sample)) for row in sample.deleted]
    lines += [("+", *_texts(row, sample)) for row in sample.inserted]
    counts = f"{len(sample.updated)} updated, {len(sample.deleted)} deleted, {len(sample.inserted)} inserted"
    return f"sample rows: {counts}{_rest(sample)}\n{columns(lines)}"


def _rest(sample: RowSample) -> str:
    left = sample.pairs - sample.compared
    return f" ({left:,} of {sample.pairs:,} groups of files were not compared)" if left else ""


def _texts(row: Row, sample: RowSample, other: Row | None = None) -> list[str]:
    return [_text(row.get(name), None if other is None else other.get(name)) for name in sample.columns]


def _text(value: Any, other: Any = None) -> str:
    """Return a value as text. Of a long one, the part with the first difference from another value is shown."""
    text = _whole(value)
    if len(text) <= _WIDEST:
        return text
    same = 0 if other is None or value == other else _same_start(text, _whole(other))
    first = 0 if same < _WIDEST - _BEFORE else same - _BEFORE
    shown = ("..." if first else "") + text[first:]
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 3] + "..."


def _same_start(text: str, other: str) -> int:
    """Return how many characters two texts have in common before the first difference."""
    differ = (at for at, (one, two) in enumerate(zip(text, other, strict=False)) if one != two)
    return next(differ, min(len(text), len(other)))


def _whole(value: Any) -> str:
    return "null" if value is None else printable(str(value))


def render_change_page(plan: ResultView, sample: RowSample, title: str) -> str:
    """Return an HTML page with a plan and the sample of its rows, without network access or scripts."""
    parts = [f"<h1>{quoted(title)}</h1>", f'<div class="scroll">{plan._repr_html_()}</div>']
    parts += _section("Updated rows", sample, sample.updated)
    parts += _section("Deleted rows", sample, [(row, None) for row in sample.deleted])
    parts += _section("Inserted rows", sample, [(None, row) for row in sample.inserted])
    if sample.is_empty or _rest(sample):
        parts.append(f"<p>{'No row changes.' if sample.is_empty else ''}{quoted(_rest(sample))}</p>")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<title>{quoted(title)}</title><style>{_STYLE}</style></head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _section(title: str, sample: RowSample, rows: Sequence[tuple[Row | None, Row | None]]) -> list[str]:
    if not rows:
        return []
    heads = "".join(f'<th scope="col">{quoted(name)}</th>' for name in ("", *sample.columns))
    lines = [line for old, new in rows for line in _lines(old, new, sample)]
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    label = f'<div class="scroll" tabindex="0" role="group" aria-label="{quoted(title)}">'
    return [f"<h2>{quoted(title)}: a sample of {len(rows):,}</h2>", f"{label}{table}</div>"]


def _lines(old: Row | None, new: Row | None, sample: RowSample) -> list[str]:
    """Return table rows before and after; a value that differs has a colour."""
    found = []
    for row, other, kind, word in ((old, new, "old", "before"), (new, old, "new", "after")):
        if row is None:
            continue
        cells = "".join(
            f'<td class="{kind}">{quoted(_text(row.get(name), None if other is None else other.get(name)))}</td>'
            if other is None or repr(other.get(name)) != repr(row.get(name))
            else f"<td>{quoted(_text(row.get(name)))}</td>"
            for name in sample.columns
        )
        found.append(f'<tr><th scope="row">{word}</th>{cells}</tr>')
    return found
