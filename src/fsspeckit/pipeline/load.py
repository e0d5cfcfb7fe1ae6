"""Load and check a pipeline file: replace variables, and report every error with its key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.text import printable, split_message
from fsspeckit.pipeline.model import AnyStep, PipelineFile
from fsspeckit.pipeline.parts import SOURCES

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_SECRET = frozenset({"storage_options", "options", "conf", "variables"})
"""Tables whose values error messages do not show."""
_STEPS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["do"].annotation)[0]: model for model in get_args(AnyStep)
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a pipeline file: its key, what is wrong, and what to do."""

    key: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.what}; {self.remedy}" if self.key else f"{self.what}; {self.remedy}"


class PipelineFileError(FsspeckitError, ValueError):
    """A pipeline file is invalid; ``problems`` lists every error that was found."""

    wrong_call = True

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file, self.problems = file, tuple(problems)
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))

    def __str__(self) -> str:
        return "\n".join(printable(f"{self.file}: {problem}") for problem in self.problems)


def load_file(path: str | Path, given: Mapping[str, str]) -> PipelineFile:
    """Read and check a pipeline file."""
    name = str(path)
    try:
        raw = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise PipelineFileError(
            name, [Problem("", f"it cannot be read ({error.strerror})", "check the path")]
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineFileError(name, [Problem("", f"it is not TOML: {error}", "correct that line")]) from error
    return parse(raw, given, name)


def parse(raw: Mapping[str, Any], given: Mapping[str, str], name: str = "pipeline") -> PipelineFile:
    """Replace variables and check the result."""
    variables = _Variables(raw.get("variables", {}), given)
    filled = {key: value if key == "variables" else variables.fill(value, key) for key, value in raw.items()}
    problems = [*variables.problems, *variables.unused()]
    if problems:
        raise PipelineFileError(name, problems)
    try:
        return PipelineFile.model_validate(filled)
    except ValidationError as error:
        raise PipelineFileError(name, list(_problems(error, filled))) from error


class _Variables:
    """Replaces `${name}` (caller, else default) and `${env:NAME}` (environment); `$${` is a literal `${`."""

    def __init__(self, defaults: Any, given: Mapping[str, str]) -> None:
        self._defaults = defaults if isinstance(defaults, Mapping) else {}
        self._given, self._used = given, set[str]()
        self.problems: list[Problem] = []

    def fill(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: self._value(found, key), value)
        if isinstance(value, Mapping):
            return {name: self.fill(item, f"{key}.{name}") for name, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, f"{key}[{number}]") for number, item in enumerate(value)]
        return value

    def unused(self) -> Iterator[Problem]:
        """Yield an error for each given variable that the file does not use."""
        known = sorted({*self._defaults, *self._used})
        for name in self._given.keys() - known:
            listed = f"use one of {', '.join(known)}" if known else "leave it out, the file has no variables"
            yield Problem(f"variable {name}", "it occurs nowhere in the file", listed)

    def _value(self, found: re.Match[str], key: str) -> str:
        name = found[1]
        if name is None:
            return "${"
        if name.startswith("env:"):
            return self._from_environment(name.removeprefix("env:"), key)
        self._used.add(name)
        if name in self._given:
            return self._given[name]
        if name in self._defaults:
            default = self._defaults[name]
            text = str(default).lower() if isinstance(default, bool) else str(default)
            return _VARIABLE.sub(lambda inner: self._inner(inner, f"variables.{name}"), text)
        self.problems.append(
            Problem(key, f"the variable {name!r} has no value", f"pass --var {name}=..., or set variables.{name}")
        )
        return ""

    def _inner(self, found: re.Match[str], key: str) -> str:
        """Replace a variable inside a default, where only `${env:NAME}` is allowed."""
        if found[1] is None:
            return "${"
        if found[1].startswith("env:"):
            return self._from_environment(found[1].removeprefix("env:"), key)
        self.problems.append(Problem(key, f"a default cannot use {found[0]}", "only ${env:NAME} is allowed there"))
        return ""

    def _from_environment(self, name: str, key: str) -> str:
        if name not in os.environ:
            self.problems.append(Problem(key, f"the environment has no {name}", f"set {name}"))
        return os.environ.get(name, "")


def _problems(error: ValidationError, raw: Mapping[str, Any]) -> Iterator[Problem]:
    for found in error.errors(include_url=False):
        where, model = _locate(found["loc"])
        key, value, context = _key_text(where, raw), _shown(found, where), found.get("ctx", {})
        match found["type"]:
            case "literal_error":
                yield Problem(key, f"{value} is not allowed", f"use one of {context['expected']}")
            case "union_tag_invalid":
                yield Problem(
                    f"{key}.do", f"{context['tag']!r} is not allowed", f"use one of {context['expected_tags']}"
                )
            case "union_tag_not_found":
                yield Problem(f"{key}.do", "it is missing", f"use one of {', '.join(map(repr, _STEPS))}")
            case "extra_forbidden":
                yield Problem(key, "this key is unknown", f"use one of {', '.join(_keys(model))}")
            case "missing":
                yield Problem(key, "it is missing", _add(model, where[-1]))
            case "value_error":
                what, remedy = split_message(str(context["error"]))
                yield Problem(key, what, remedy or "correct it")
            case "string_pattern_mismatch":
                yield Problem(key, f"{value} is not allowed", f"it must match {context['pattern']}")
            case _:
                yield Problem(key, f"{value} is wrong", _allowed(found["type"], context))


_KINDS = {
    "string": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": 'a list, such as ["a", "b"]',
    "tuple": 'a list, such as ["a", "b"]',
    "dict": "a table, such as { key = value }",
    "model": "a table, such as { key = value }",
}
_LIMITS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "min_length": "a length of at least",
    "max_length": "a length of at most",
}


def _allowed(kind: str, context: Mapping[str, Any]) -> str:
    """Return what a value must be instead, from the type of a validation error and its limits."""
    limits = [f"{words} {context[name]}" for name, words in _LIMITS.items() if name in context]
    if limits:
        return f"it must have {limits[0]}" if "length" in limits[0] else f"it must be {limits[0]}"
    expected = _KINDS.get(kind.partition("_")[0])
    return "`fsspeckit run --schema` shows what is allowed" if expected is None else f"write {expected}"


def _shown(found: Mapping[str, Any], where: Sequence[str | int]) -> str:
    """Return an invalid value for a message: a keyword or a number; for other values, which may be secret, the type."""
    value, is_keyword = found["input"], found["type"] in ("literal_error", "string_pattern_mismatch")
    is_secret = not _SECRET.isdisjoint(where)
    if not is_secret and (isinstance(value, int | float) or value == [] or (is_keyword and isinstance(value, str))):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def _locate(location: Sequence[str | int]) -> tuple[list[str | int], type[BaseModel] | None]:
    """Return the keys of a location without union members, and the model of the last key."""
    keys: list[str | int] = []
    model: Any = PipelineFile
    for part in location:
        if keys[:1] == ["steps"] and len(keys) == 2 and part in _STEPS:
            model = _STEPS[str(part)]
            continue
        if keys[:1] == ["sources"] and len(keys) == 2 and part in SOURCES:
            model = SOURCES[str(part)]
            continue
        if len(keys) > 1 and part in ("str", "int", "float", "bool", "list[str]"):
            continue
        keys.append(part)
        if part != location[-1]:
            model = _inside(model, part)
    return keys, model


def _inside(model: Any, part: str | int) -> Any:
    """Return the model of the values of a key; for tables of tables and lists, the model of their items."""
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return model
    field = model.model_fields.get(str(part))
    nested = [kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel)] if field is not None else []
    return nested[0] if len(nested) == 1 else model


def _kinds(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def _keys(model: type[BaseModel] | None) -> list[str]:
    fields = model.model_fields if model is not None else {}
    return [field.alias or name for name, field in fields.items()]


def _add(model: type[BaseModel] | None, key: str | int) -> str:
    """Return the action for a missing key; it lists the allowed values of a choice."""
    fields = (model.model_fields if model is not None else {}).items()
    field = next((field for name, field in fields if key in (name, field.alias)), None)
    choices = get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
    return f"add one of {', '.join(map(repr, choices))}" if choices else "add it"


def _key_text(keys: Sequence[str | int], raw: Any) -> str:
    """Return a location as text, with the name of a step after its number."""
    text, value = "", raw
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value = None
        if isinstance(key, int) and isinstance(value, Mapping) and "name" in value:
            text += f" ({value['name']})"
    return text
