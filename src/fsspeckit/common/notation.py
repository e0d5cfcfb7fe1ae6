"""How the numbers and dates of a text file are written, and their usual form: a decimal point, and ISO dates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.types import is_number, unwrapped

_PARTS = re.compile(r"[0-9]+|[^0-9\s]+")
_ADJACENT = re.compile(r"%[A-Za-z]%[A-Za-z]")
_ZONE = re.compile(r"([+-][0-9]{2}):([0-9]{2})")
_FRACTION = re.compile(r"(?<=[.,])[0-9]{1,6}(?![0-9.,])")
_COMMA = r"^\s*-?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+)(,[0-9]+)?\s*$"


@dataclass(frozen=True, slots=True)
class Notation:
    """Numbers with a decimal comma (and points between thousands), and dates in a format of `strptime`.

    Examples:
        >>> Notation(decimal_comma=True).plain(pa.array(["-1.234,56"]), pa.decimal128(9, 2)).to_pylist()
        ['-1234.56']
        >>> Notation(date_format="%d.%m.%Y").plain(pa.array(["31.03.2026"]), pa.date32()).to_pylist()
        ['2026-03-31']
    """

    decimal_comma: bool = False
    date_format: str | None = None

    def __post_init__(self) -> None:
        """Refuse a format that cannot format a date."""
        if self.date_format is None:
            return
        try:
            parsed = _moment(self.example, self.date_format)
        except ValueError as error:
            raise ValueError(f"date_format={self.date_format!r}: {error}; use one such as '%d.%m.%Y'") from error
        if parsed.date() != date(2026, 3, 31):
            raise ValueError(f"date_format={self.date_format!r} has no day, month and year; use one such as '%d.%m.%Y'")

    @property
    def example(self) -> str:
        """The last day of March 2026 in the date format; the empty text without one."""
        return "" if self.date_format is None else datetime(2026, 3, 31, tzinfo=UTC).strftime(self.date_format)

    def plain(self, texts: pa.Array, type_: pa.DataType) -> pa.Array:
        """Return texts of a column of a type in the usual form.

        Raises:
            pa.ArrowInvalid: A text is not written as described.
        """
        kind = unwrapped(type_)
        if self.decimal_comma and is_number(kind):
            return _with_point(texts)
        if self.date_format is not None and (pat.is_date(kind) or pat.is_timestamp(kind)):
            return _iso(texts, self.date_format, with_time=pat.is_timestamp(kind))
        return texts


def _moment(text: str, format_: str) -> datetime:
    """Return a time. Raise `ValueError` for a text that `strptime` takes, but that is not written in the format.

    Examples:
        >>> _moment("1.3.2026", "%d.%m.%Y").isoformat()
        '2026-03-01T00:00:00'
        >>> _moment("2026031", "%Y%m%d")
        Traceback (most recent call last):
        ValueError: '2026031' is not '20260301'
    """
    moment = datetime.strptime(text, format_)  # noqa: DTZ007 - the type of the column says whether there is a zone
    written = moment.strftime(format_)
    if text != written and _normal(text, format_) != _normal(written, format_):
        raise ValueError(f"{text!r} is not {written!r}")
    return moment


def _normal(text: str, format_: str) -> list[str]:
    """Return the parts of a text without what may differ: case, spaces, forms of a zone, leading zeros.

    Zeros count where one number follows another one directly.
    """
    if "%z" in format_:
        text = _ZONE.sub(r"\1\2", text.replace("Z", "+0000"))
    if "%f" in format_:
        text = _FRACTION.sub(lambda found: found[0].ljust(6, "0"), text)
    parts = _PARTS.findall(text.casefold())
    return parts if _ADJACENT.search(format_) else [part.lstrip("0") if part.isdigit() else part for part in parts]


def _with_point(texts: pa.Array) -> pa.Array:
    if not pc.all(pc.match_substring_regex(texts, _COMMA), min_count=0).as_py():
        raise pa.ArrowInvalid("a text is not a number with a decimal comma")
    return pc.replace_substring(pc.replace_substring(texts, ".", ""), ",", ".")


def _iso(texts: pa.Array, format_: str, *, with_time: bool) -> pa.Array:
    """Dates repeat, so each text is parsed once."""
    distinct = texts.dictionary_encode()
    try:
        moments = [_moment(text.strip(), format_) for text in distinct.dictionary.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    if not with_time and any(moment.time() != time() for moment in moments):
        raise pa.ArrowInvalid("a date has no time")
    iso = [moment.isoformat(" ") if with_time else moment.date().isoformat() for moment in moments]
    return pa.array(iso, pa.string()).take(distinct.indices)


USUAL = Notation()
"""A decimal point, and ISO dates."""
