"""Settings, in order of precedence: options, the environment, a configuration file, the default.

The file is `--config`, else `$FSSPECKIT_CONFIG`, else `fsspeckit.toml` in the working folder, else
`fsspeckit/config.toml` in the user's configuration folder. It may hold `engine`, `publish` and a table
`storage_options`.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from fsspeckit.cli.errors import usage
from fsspeckit.common.choices import EngineName, PublishMode

_KEYS = {"engine": str, "publish": str, "storage_options": dict}
_CHOICES = {"engine": get_args(EngineName), "publish": get_args(PublishMode)}


def load_config(named: Path | None) -> dict[str, Any]:
    """Return the settings of the configuration file; empty if there is no file."""
    path = named if named is not None else _default_path()
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise usage(f"cannot read the configuration file {path}: {error.strerror}", "check --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise usage(f"the configuration file {path} is not TOML: {error}", "correct that line") from error
    _check(found, path)
    return found


def _default_path() -> Path | None:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    paths = (Path("fsspeckit.toml"), Path(base) / "fsspeckit" / "config.toml")
    return next((path for path in paths if path.is_file()), None)


def _check(found: Mapping[str, Any], path: Path) -> None:
    for key, value in found.items():
        if key not in _KEYS:
            raise usage(f"{path}: the key {key!r} is unknown", f"use one of {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]):
            wanted = "a table" if _KEYS[key] is dict else "a text"
            raise usage(f"{path}: {key} is of type {type(value).__name__}", f"make {key} {wanted}")
    for key, choices in _CHOICES.items():
        if key in found and found[key] not in choices:
            raise usage(f"{path}: {key} = {found[key]!r} is unknown", f"use one of {', '.join(choices)}")


def split_pairs(words: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Return names and values of a `name=value` option. Errors do not show the value: it may be a secret."""
    found = [pair.partition("=") for pair in words]
    for number, (name, equals, _) in enumerate(found, 1):
        if not name or not equals:
            raise usage(f"{option} number {number} has no value", f"write it as {option} name=value")
    return [(name, value) for name, _, value in found]


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse storage options from `k=v` pairs: dots nest, and a value that is JSON is parsed as JSON.

    Examples:
        >>> parse_options(["anon=true", "client_kwargs.endpoint_url=http://127.0.0.1:9000", 'key="123"'])
        {'anon': True, 'client_kwargs': {'endpoint_url': 'http://127.0.0.1:9000'}, 'key': '123'}
    """
    options: dict[str, Any] = {}
    for name, text in split_pairs(pairs, "--storage-option"):
        *outer, last = name.split(".")
        table = options
        for part in outer:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise usage(f"--storage-option {name!r} contradicts another one", "give each option once")
        table[last] = _value(text)
    return options


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
