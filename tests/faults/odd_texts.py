"""Csv and json files that are odd or damaged: made up at random, and those that are known to be difficult."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

_DEEP = (2, 90, 99, 100, 101, 500, 3000, 20_000)
_SPACE = ("", "", "", " ", "\n", "\r\n", "\t")
_ODD_SPACE = ("\x0b", "\x0c", "\x00", "\u00a0", "\u2028", "\ufeff")
_JSON_VALUES = (
    *("null", "null", "true", "false", "0", "-0", "1", "-7", "1.5", "-0.0", "1e5", "1E-320", "1e400", "-1e999999"),
    *("NaN", "Infinity", "-Infinity", "18446744073709551615", "9223372036854775808", "-9223372036854775809"),
    *("9007199254740993", "0.1234567890123456789", "1.50", "12345678901234567890.123", "123456789012345678901234567"),
    *('""', '"x"', '"01"', '"2024-01-01"', '"2024-01-01T10:00:00Z"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"'),
    *('"\\u0000"', '"{[}]"', '"\\\\"', '"\\""', '"\\\\\\""', '"a\\nb"', '"é\u2028"', "[]", "{}", '"7"', '"1.5"'),
)
_NOT_JSON = (
    *(
        "nul",
        "tru",
        "01",
        "+1",
        ".5",
        "1.",
        "'x'",
        '"',
        '"\t"',
        "undefined",
        "0x10",
        "1_0",
        "--1",
        "//",
        "\\",
        ",",
        ":",
    ),
)
_CELLS = (
    *("", "", '""', "0", "1", "-7", "01", "+5", "1.5", "1.50", "-0", "-0.0", "1e5", "nan", "inf", "0x1f", " 5", "5 "),
    *("9007199254740993", "18446744073709551615", "0.1234567890123456789", "99999999999999999999999999999999999999.5"),
    *("true", "False", "NULL", "NA", "2024-02-29", "2024-02-30", "2024-02-29 01:02:03", "2024-02-29T01:02:03.500Z"),
    *("x", "é", "\u2028", "a b", '5" nail', '"x,y"', '"a\nb"', '"a\r\nb"', '"a""b"', '""""', '"1"', '"01"', " ", '" "'),
)
_NOT_CSV = ('"a"b', '"a" ', '"', '"a', 'a"', '""x', '"x"""y', "\x00", ' "a"')
_TYPES: tuple[pa.DataType, ...] = (
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string()),
    *(pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.time64("us")),
    *(pa.decimal128(9, 2), pa.decimal128(38, 10), pa.decimal256(76, 38), pa.null(), pa.duration("s"), pa.binary(4)),
    *(pa.list_(pa.int64()), pa.list_(pa.string()), pa.large_list(pa.float64()), pa.list_(pa.int64(), 2)),
    *(pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.struct([]), pa.map_(pa.string(), pa.int64())),
    *(pa.dictionary(pa.int8(), pa.string()), pa.json_(), pa.uuid(), pa.string_view()),
    pa.list_(pa.struct([("x", pa.date32())])),
)
_DAMAGE = (b"null", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"\n", b"null\n", b"\xff", b"\x00", b"\r")


@dataclass(frozen=True, slots=True)
class Case:
    """A file, and how it is read."""

    format: Literal["csv", "json"]
    data: bytes
    types: dict[str, pa.DataType] = field(default_factory=dict)
    as_schema: bool = False
    use_threads: bool = True


def random_case(rng: random.Random) -> Case:
    """A file that may be damaged."""
    is_csv = rng.random() < 0.5
    text = rng.choice(("", "", "", "\ufeff", *_SPACE, *_ODD_SPACE)) + (_csv(rng) if is_csv else _json(rng))
    data = text.encode("utf-8", "replace")
    if rng.random() < 0.3:
        data = _damaged(data, rng)
    types = {name: rng.choice(_TYPES) for name in ("a", "b", "c") if rng.random() < 0.5} if rng.random() < 0.5 else {}
    return Case("csv" if is_csv else "json", data, types, bool(types) and rng.random() < 0.3, rng.random() < 0.5)


def known_cases() -> Iterator[Case]:
    """Files that once ended the process, hung it, or were read as something else, and others like them."""
    for types in ({}, {"a": pa.int64()}, {"a": pa.string(), "zz": pa.date32()}, {"a": pa.decimal128(38, 3)}):
        for text in _known_json():
            yield Case("json", text.encode(), types)
            yield Case("json", text.encode(), types, bool(types), False)
        for text in _known_csv():
            yield Case("csv", text.encode(), types)


def _known_json() -> Iterator[str]:
    yield from ("null", "null\n", 'null\n{"a":1}', '\ufeffnull\n{"a":1}', '{"a":1}\nnull\n{"a":2}', '{"a":1}null')
    yield from ("null null", " null", '{"a":1}\n  null', "[null]", '[{"a":1},null]', '{"a":1}\n[null]', "[[null]]")
    yield from ("[[{}]]", "{} [] {}", "1", '"x"', "true", "[1]", "[]", "[[]]", "{}", "{}{}", '{"a":1}}', "}", "]", "-")
    yield from ('{"a":1}\n"x"', "NaN", "\\", '{"a":1,"a":"x"}', '{"a":{"b":1,"b":"x"}}', '{"a":1e-100000}')
    for depth in (100, 101, 500, 20_000, 300_000):
        yield from ('{"a":' * depth + "1" + "}" * depth, '{"a":' + "[" * depth + "]" * depth + "}", "[" * depth)
        yield from ('{"b":1}\n{"a":' + "[" * depth, '[{"a":' + "[" * depth + "]" * depth + "}]")
        yield '{"a":"' + "[" * depth + '"}'
    for digits in ("9" * 100_000, "-0." + "3" * 100_000, "1" + "e9" * 1000, "[" + "9" * 100_000 + "]"):
        yield f'{{"a":{digits}}}'
    yield from ('{"' + "k" * 1_000_000 + '":1}', "{" * 100_000, '{"a":"' + "x" * 3_000_000 + '"}')
    yield from ('{"a":1}\n{"a":' + "7" * 4000 + "}", '{"a":"x"}\n{"a":' + "7" * 4000 + "}", '{"a":"' + '\\"' * 100_000)
    yield "{" + ",".join(f'"k{i}":1' for i in range(5000)) + "}"


def _known_csv() -> Iterator[str]:
    yield from ("", "\n", "a", "a\n", '"a"', "a,b\n", "a,b\n,\n", 'a,b\n"",\n', 'a\n""', "a\n\n1\n", "\ufeffa\n1\n")
    yield from ('a\n"x"y\n', 'a\n"x" \n', 'a\n"x', 'a\n"', 'a\n""x"\n', 'a\nx"y\n', "a\r1\r2\r", 'a,b\r\n"1\r\n",2')
    yield from ("a,a\n1,2\n", ",\n1,2\n", "a\n1,2\n", "a,b\n1\n", "a\n" + '"' * 99_999, "a\n" + "x" * 3_000_000)
    yield from ("a\n" + "9" * 100_000 + "\n", "a\n0." + "3" * 50_000, "a\n" + '"",' * 1000, "\x00", "a\x00b\n1\n")
    yield ",".join(f"k{i}" for i in range(2000)) + "\n" + ",".join("1" for _ in range(2000))


def _damaged(sound: bytes, rng: random.Random) -> bytes:
    data = bytearray(sound)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, change = rng.randrange(len(data) + 1), rng.random()
        if change < 0.3 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif change < 0.5:
            del data[at : at + rng.randrange(1, 6)]
        elif change < 0.8:
            data[at:at] = rng.choice(_DAMAGE)
        else:
            data[at:at] = data[at : at + rng.randrange(40)]
    return bytes(data)


def _csv(rng: random.Random) -> str:
    """Rows whose columns are written in one form each, most of the time."""
    names = rng.sample(("a", "b", "c", "é", "", '"x,y"'), rng.randrange(1, 4))
    forms = [rng.sample(_CELLS, rng.choice((1, 2, 5))) for _ in names]
    rows = [",".join(names)]
    for _ in range(rng.randrange(6)):
        cells = [rng.choice(_NOT_CSV) if rng.random() < 0.01 else rng.choice(form) for form in forms]
        cells += ["1"] if rng.random() < 0.01 else []
        rows.append(",".join(cells))
    end = rng.choice(("\n", "\n", "\r\n", "\r"))
    return end.join(rows) + rng.choice((end, end, "", end * 2))


def _json(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return _json_columns(rng) if kind < 0.25 else _nested_columns(rng)
    makers = [_object] * 12 + [_value]
    values = [rng.choice(makers)(rng) for _ in range(rng.randrange(5))]
    if rng.random() < 0.4:
        return "[" + f",{rng.choice(_SPACE)}".join(values) + rng.choice(("]", "]", "]", "],", "", ",]", "]]"))
    return rng.choice(("\n", "\n", "\n", "\r\n", " ", "", ",", "\n\n", *_ODD_SPACE)).join(values)


def _json_columns(rng: random.Random) -> str:
    """Objects whose columns have one type each, most of the time."""
    kinds = {name: rng.sample(_JSON_VALUES, 2) for name in rng.sample(("a", "b", "c"), rng.randrange(1, 4))}
    rows = []
    for _ in range(rng.randrange(1, 5)):
        cells = [f'"{name}": {rng.choice((*some, "null"))}' for name, some in kinds.items() if rng.random() < 0.9]
        rows.append("{" + ", ".join(cells) + "}")
    return rng.choice(("\n", " ", "")).join(rows) if rng.random() < 0.7 else "[" + ",".join(rows) + "]"


def _nested_columns(rng: random.Random) -> str:
    """Objects whose columns have one nested type each, with nulls at every level."""
    kinds = {name: _kind(rng) for name in ("a", "b")}
    rows = [{name: _of_kind(rng, kind) for name, kind in kinds.items() if rng.random() < 0.8} for _ in range(4)]
    return "\n".join(map(json.dumps, rows))


def _kind(rng: random.Random, depth: int = 0) -> Any:
    """A list of a kind, a dictionary of kinds, or two values."""
    kind = rng.random()
    if depth < 3 and kind < 0.35:
        return [_kind(rng, depth + 1)]
    if depth < 3 and kind < 0.6:
        return {name: _kind(rng, depth + 1) for name in ("x", "y")}
    return rng.choice(((0, 7), ("a", "2024-01-01"), (1.5, 2), (True, False), (2**63, 0.25)))


def _of_kind(rng: random.Random, kind: Any) -> Any:
    if rng.random() < 0.3:
        return None
    if isinstance(kind, list):
        return [_of_kind(rng, kind[0]) for _ in range(rng.randrange(4))]
    if isinstance(kind, dict):
        return {name: _of_kind(rng, each) for name, each in kind.items() if rng.random() < 0.7}
    return rng.choice(kind)


def _value(rng: random.Random, depth: int = 0) -> str:
    """A JSON value, seldom a broken one."""
    kind = rng.random()
    if kind < 0.004:
        return rng.choice(_NOT_JSON)
    if kind < 0.008:
        return "9" * rng.choice((20, 77, 400, 5000)) + rng.choice(("", ".5", "e5"))
    if kind < 0.012:
        levels = rng.choice(_DEEP)
        opening, closing = rng.choice((('{"a":', "}"), ("[", "]"), ('[{"a":', "}]")))
        return opening * levels + "1" + closing * levels
    if kind < 0.7 or depth > 4:
        return rng.choice(_JSON_VALUES)
    if kind < 0.85:
        return "[" + ",".join(_value(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    return _object(rng, depth + 1)


def _object(rng: random.Random, depth: int = 0) -> str:
    """A JSON object with few keys, seldom with one twice."""
    names = rng.sample(("a", "b", "c", "", "a.b", "/x", "é", "\\u0061", "k" * 300), rng.randrange(5))
    if rng.random() < 0.01 and names:
        names.append(names[0])
    space = rng.choice(_SPACE)
    return "{" + f",{space}".join(f'"{name}":{space}{_value(rng, depth)}' for name in names) + space + "}"
