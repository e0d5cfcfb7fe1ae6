"""Text as typed values: parse it as a given type, or infer the type that a whole column is written in.

No value changes. Text is parsed only where the type holds what the text says, and a type is inferred only where
formatting the parsed values gives the same text back: ``01``, ``+5``, ``1e5`` or ``NA`` stay text. Everything works on
whole arrays; only values that need a closer look are compared one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import cast_text
from fsspeckit.common.casting import exact_cast, parse_decimals
from fsspeckit.common.inference import PADDED_NUMBER, canonical_integer
from fsspeckit.common.types import is_bytes, is_number, is_text, unwrapped

_EXACT_DIGITS = {16: 3, 32: 6, 64: 15}
"""Decimal digits that a float of so many bits always holds."""
_TINY = {16: 1e-3, 32: 1e-36, 64: 1e-290}
"""Below this a float holds fewer digits than usual."""
_NOT_FINITE = {"nan", "inf", "infinity"}
_FINER = ("us", "ns")
_SHOWN = 60
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d(?:\.(\d{3}|\d{6}|\d{9}))?(Z?)")
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}


def parse_text(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse text as values of a type.

    Space around numbers, dates and booleans is ignored. Text with leading zeros or a plus sign is not a number. A float
    must be formatted to the text, or have the digits of the text when it is printed with as many.

    Raises:
        pa.ArrowException: A text is not a value of the type, or text cannot be parsed as this type at all.

    Examples:
        >>> import pyarrow as pa
        >>> parse_text(pa.array([" 7", None]), pa.int64()).to_pylist()
        [7, None]
    """
    if isinstance(type_, pa.BaseExtensionType):
        if not is_text(type_.storage_type):
            raise pa.ArrowNotImplementedError(f"text cannot be parsed as {type_}")
        return type_.wrap_array(exact_cast(texts, type_.storage_type))
    plain = unwrapped(type_)
    if is_text(plain):
        return exact_cast(texts, type_)
    return exact_cast(_parse(texts, plain), type_)


def not_a_value(value: object, type_: pa.DataType) -> str:
    """Say why a value is not one of a type."""
    reason = ""
    if isinstance(value, str) and is_number(type_) and re.match(PADDED_NUMBER, value.strip()):
        reason = ": text with leading zeros or a plus sign is not a number"
    elif pat.is_integer(type_):
        reason = ": the column holds whole numbers"
    elif pat.is_timestamp(type_):
        reason = " without a zone" if type_.tz is None else ", which needs a zone such as Z"
    return f"{shown(value)} is not a value of the type {type_}{reason}"


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def first_failure(array: pa.Array, parse: Callable[[pa.Array], object]) -> int:
    """The position of the first value that cannot be parsed; some value of the array cannot."""
    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            parse(array.slice(start, middle - start))
        except pa.ArrowException:
            stop = middle
        else:
            start = middle
    return start


def infer_type(chunks: Sequence[pa.Array]) -> pa.DataType:
    """The type that all texts of a column are written in; text where formatting would not give every text back.

    Null and the empty text say nothing about the type. A column without any other value is text.

    Examples:
        >>> import pyarrow as pa
        >>> [str(infer_type([pa.array(texts)])) for texts in (["1", None], ["01"], ["1", "2.5"], ["1.50", "0.25"])]
        ['int64', 'string', 'double', 'decimal128(18, 2)']
    """
    column = _Column.of(chunks)
    return next((form.type for form in column.forms or () if column.has(form)), pa.string())


@dataclass(frozen=True, slots=True)
class TextForms:
    """How the texts of a part of a column are written: the forms that all of them have; None where there is no text."""

    forms: tuple[tuple[str, pa.DataType], ...] | None


def find_forms(chunks: Sequence[pa.Array]) -> TextForms:
    """The forms of a part of a column, such as the part that is in one file."""
    column = _Column.of(chunks)
    if column.forms is None:
        return TextForms(None)
    return TextForms(tuple((form.name, form.type) for form in column.forms if column.has(form)))


def join_forms(parts: Sequence[TextForms]) -> pa.DataType:
    """The type of a column by the forms of its parts; `infer_type` of the whole column gives the same type.

    Examples:
        >>> import pyarrow as pa
        >>> str(join_forms([find_forms([pa.array(["1"])]), find_forms([pa.array(["2.5"])])]))
        'double'
    """
    known = [part.forms for part in parts if part.forms is not None]
    first = known[0] if known else ()
    return next((form[1] for form in first if all(form in forms for forms in known)), pa.string())


def blank_to_null(texts: pa.Array) -> pa.Array:
    """The same texts with null in place of empty ones."""
    blank = pc.equal(texts, "")
    return pc.if_else(blank, pa.scalar(None, texts.type), texts) if pc.any(blank).as_py() else texts


def _first(texts: pa.Array) -> str | None:
    valid = pc.index(texts.is_valid(), True).as_py() if len(texts) else -1
    return None if valid < 0 else str(texts[valid])


@dataclass(frozen=True, slots=True)
class _Form:
    """A type, and the test whether texts are written as its values are formatted; no two forms have one name."""

    name: str
    type: pa.DataType
    test: Callable[[pa.Array], bool]

    def holds(self, texts: pa.Array) -> bool:
        try:
            return self.test(texts)
        except pa.ArrowInvalid:  # a text is not a value of the type at all
            return False


@dataclass(frozen=True, slots=True)
class _Column:
    """Texts without blank ones, and the forms that the first of them has; None where there is none."""

    texts: Sequence[pa.Array]
    forms: Sequence[_Form] | None

    @classmethod
    def of(cls, chunks: Sequence[pa.Array]) -> _Column:
        filled = [blank_to_null(chunk) for chunk in chunks]
        first = next((found for chunk in filled if (found := _first(chunk)) is not None), None)
        if first is None:
            return cls(filled, None)
        sample = pa.array([first])
        return cls(filled, [form for form in _forms(first) if form.holds(sample)])

    def has(self, form: _Form) -> bool:
        return all(map(form.holds, self.texts))


def _forms(first: str) -> Iterator[_Form]:
    """The forms that a column with this text may have, in the order in which they are tried."""
    yield _Form("integer", pa.int64(), lambda texts: _all_equal(texts.cast(pa.int64()).cast(pa.string()), texts))
    for whole in ("", ".0"):
        yield _Form(f"float {whole}", pa.float64(), lambda texts, whole=whole: _are_floats(texts, whole))  # type: ignore[misc]
    if found := _DECIMAL.fullmatch(first):
        yield from _decimal_forms(len(found[1]))
    yield _Form("boolean", pa.bool_(), _are_booleans)
    yield _Form("date", pa.date32(), lambda texts: _all_equal(texts.cast(pa.date32()).cast(pa.string()), texts))
    if found := _MOMENT.fullmatch(first):
        yield _moment_form(found[1], len(found[2] or ""), found[3])


def _are_booleans(texts: pa.Array) -> bool:
    return _all(pc.is_in(texts, pa.array(["true", "false", None], texts.type)))


def _all(flags: pa.Array) -> bool:
    return bool(pc.all(flags, min_count=0).as_py())


def _all_equal(formatted: pa.Array, texts: pa.Array) -> bool:
    return _all(pc.equal(formatted, texts))


def _are_floats(texts: pa.Array, whole: str) -> bool:
    """Whether texts are the shortest form of float64 numbers, where whole numbers end in ``whole``."""
    numbers = texts.cast(pa.float64())
    if not _all(pc.is_finite(numbers)):
        return False
    formatted = numbers.cast(pa.string())
    if whole:
        is_whole = pc.match_substring_regex(formatted, r"^-?[0-9]+$")
        formatted = pc.if_else(is_whole, pc.binary_join_element_wise(formatted, whole, ""), formatted)
    rest = texts.filter(pc.not_equal(formatted, texts)).unique()
    return all(_is_float(text, whole) for text in rest.to_pylist())


def _is_float(text: str, whole: str) -> bool:
    """The other forms of a float: with Python's exponents, or whole and too long for Arrow to write without one."""
    if whole:
        return repr(float(text)) == text
    number = canonical_integer(text)
    return number is not None and abs(number) <= 2**53


def _decimal_forms(scale: int) -> Iterator[_Form]:
    pattern = rf"^-?(0|[1-9][0-9]*)\.[0-9]{{{scale}}}$"
    for precision in (18, 38):
        if scale <= precision:
            type_ = pa.decimal128(precision, scale)
            yield _Form(str(type_), type_, lambda texts, type_=type_: _are_decimals(texts, type_, pattern))  # type: ignore[misc]


def _are_decimals(texts: pa.Array, type_: pa.DataType, pattern: str) -> bool:
    if not _all(pc.match_substring_regex(texts, pattern)):
        return False
    _parse_decimals(texts, type_)  # raises where there are too many digits
    return not pc.any(pc.match_substring_regex(texts, r"^-[0.]+$")).as_py()


def _moment_form(separator: str, digits: int, zone: str) -> _Form:
    """Timestamps of one form: the same separator, digits of a second, and no zone or UTC."""
    tz = "UTC" if zone else None
    unit = _UNITS[digits]

    def test(texts: pa.Array) -> bool:
        formatted = texts.cast(pa.timestamp(unit, tz)).cast(pa.string())
        return _all_equal(pc.replace_substring(formatted, " ", separator), texts)

    return _Form(f"timestamp {separator} {digits} {zone}", pa.timestamp("ns" if unit == "ns" else "us", tz), test)


def _parse(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return _parse_tidy(texts, type_)
    except pa.ArrowInvalid:
        tidy = pc.ascii_trim_whitespace(texts)
        if is_bytes(type_) or pat.is_fixed_size_binary(type_) or tidy.equals(texts):
            raise
        return _parse_tidy(tidy, type_)


def _parse_tidy(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    if is_number(type_) and pc.any(pc.match_substring_regex(texts, PADDED_NUMBER)).as_py():
        raise pa.ArrowInvalid("text with leading zeros or a plus sign is not a number")
    if pat.is_integer(type_):
        return _parse_integers(texts, type_)
    if pat.is_floating(type_):
        return _parse_floats(texts, type_)
    if pat.is_timestamp(type_):
        return _parse_moments(texts, type_)
    if pat.is_date(type_):
        return exact_cast(texts.cast(pa.date32()), type_)
    if pat.is_time(type_):
        moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return _parse_moments(moments, pa.timestamp(type_.unit)).cast(type_)
    if pat.is_decimal(type_):
        return _parse_decimals(texts, type_)
    if pat.is_boolean(type_) or is_bytes(type_) or pat.is_fixed_size_binary(type_):
        return texts.cast(type_)
    raise pa.ArrowNotImplementedError(f"text cannot be parsed as {type_}")


def _parse_integers(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    parsed = texts.cast(type_)
    if pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("hexadecimal text is not parsed as a number")
    return parsed


def _parse_decimals(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Arrow lets numbers of too many digits overflow, so long ones and those with an exponent are looked at again."""
    is_wide = pat.is_decimal256(type_)
    parsed = parse_decimals(texts, pa.decimal256(76, type_.scale) if is_wide else pa.decimal128(38, type_.scale))
    doubtful = pc.or_(pc.greater(pc.binary_length(texts), 38), pc.match_substring(texts, "e", ignore_case=True))
    for text, number in zip(texts.filter(doubtful).to_pylist(), parsed.filter(doubtful).to_pylist(), strict=True):
        if Decimal(text) != number:
            raise pa.ArrowInvalid(f"a decimal cannot hold all digits of {text}")
    return exact_cast(parsed, type_)


def _parse_moments(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Timestamps; digits of a second beyond the type's unit must be zero."""
    try:
        return cast_text(texts, type_)
    except pa.ArrowInvalid:
        for unit in _FINER:
            try:
                finer = cast_text(texts, pa.timestamp(unit, type_.tz))
            except pa.ArrowInvalid:
                continue
            return exact_cast(finer, type_)
        raise


def _parse_floats(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    numbers = texts.cast(type_)
    wide = numbers.cast(pa.float64())
    bits = type_.bit_width
    doubtful = pc.or_(
        pc.greater(pc.binary_length(texts), _EXACT_DIGITS[bits]),
        pc.or_(pc.invert(pc.is_finite(wide)), pc.less(pc.abs(wide), _TINY[bits])),
    )
    if pc.any(doubtful).as_py():
        _check_digits(texts.filter(doubtful), numbers.filter(doubtful))
    return numbers


def _check_digits(texts: pa.Array, numbers: pa.Array) -> None:
    """Raise where a number is not the one that its text says."""
    formatted = format_floats(numbers)
    others = pc.not_equal(formatted, texts)
    rows = pa.table([texts, formatted, numbers.cast(pa.float64())], ["text", "formatted", "number"]).filter(others)
    distinct = rows.group_by(["text", "formatted", "number"]).aggregate([])
    for row in distinct.to_pylist():
        if not is_number_of(**row):
            raise pa.ArrowInvalid(f"a float cannot hold all digits of {row['text']}")


def format_floats(numbers: pa.Array) -> pa.Array:
    """The shortest texts that give the same floats back."""
    return (numbers.cast(pa.float32()) if pat.is_float16(numbers.type) else numbers).cast(pa.string())


def is_number_of(text: str, formatted: str, number: float) -> bool:
    """Whether a float says what a text says: as it is formatted, or printed with as many digits as the text has."""
    if text.lstrip("+-").lower() in _NOT_FINITE:
        return True
    try:
        said = Decimal(text)
    except InvalidOperation:  # such as nan(123), which Arrow parses
        return False
    if not math.isfinite(number):
        return False
    digits = len(said.as_tuple().digits)
    return said in (Decimal(formatted), Context(prec=digits).plus(Decimal(number)))
