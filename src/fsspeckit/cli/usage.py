"""Wrong calls in plain words: values that an option does not take, and options that a command does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import typer

from fsspeckit.cli.errors import CommandError

_OTHER_NAMES = {
    "--retain": "keep keep-history retention days",
    "--key": "keys primary-key key-columns on",
    "--by": "sort-by sort zorder zorder-by columns",
    "--order-by": "order dedup-order-by",
    "--where": "filter condition",
    "--delimiter": "sep separator delim",
    "--schema": "types dtypes dtype",
    "--target-mb": "target-size size target-mb-per-file file-size",
    "--target-rows": "target-rows-per-file rows",
    "--partition-by": "partition-columns partition partitions",
    "--partition": "partition-filter partitions",
    "--older-than": "older keep retain before",
    "--version": "to to-version",
    "--yes": "force assume-yes",
    "--output": "out file",
    "--deduplicate-key": "dedupe deduplicate key",
    "--dry-run": "check preview simulate",
}
"""Names that a user may try for an option."""
_VALUES = (
    (re.compile(r"Value error, (?P<value>.*) is not one of (?P<choices>.*)"), "{value} is unknown", "use {choices}"),
    (re.compile(r"Input should be a valid integer.*"), "is not a whole number", ""),
    (re.compile(r"Input should be a valid number.*"), "is not a number", ""),
    (re.compile(r"Input should be greater than or equal to (?P<bound>\S+)"), "must be {bound} or more", ""),
    (re.compile(r"Input should be less than or equal to (?P<bound>\S+)"), "must be {bound} or less", ""),
)
"""What typer says of a value, what is wrong, and what to do."""


def usage_error(error: typer.TyperException) -> CommandError:
    """Return an error of typer as what is wrong and what to do."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fsspeckit"
    problem, remedy = _described(error, context)
    remedies = [remedy, f"see `{command} --help`"] if remedy else [f"see `{command} --help`"]
    return CommandError(problem, ", or ".join(remedies), error.exit_code)


def _described(error: typer.TyperException, context: Any) -> tuple[str, str]:
    said, name = " ".join(error.format_message().split()).rstrip("."), getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and name is not None:
        if context is None or context.command_path == "fsspeckit":
            return f"No such option: {name}", "write options behind the command"
        return f"No such option: {name}", _meant(
            name, [option for each in context.command.params for option in each.opts]
        )
    message, parameter = str(getattr(error, "message", "")).rstrip("."), getattr(error, "param", None)
    for pattern, problem, remedy in _VALUES:
        found = pattern.fullmatch(message)
        if found is not None and parameter is not None:
            option = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar
            return f"{option} {problem.format(**found.groupdict())}", remedy.format(**found.groupdict())
    return said, ""


def _meant(name: str, offered: Iterable[str]) -> str:
    """Return which options of a command may be meant by a name."""
    options = [option for option in offered if option.startswith("--")]
    known = [option for option in options if name.lstrip("-") in _OTHER_NAMES.get(option, "").split()]
    found = known or get_close_matches(name, options)
    return f"use {' or '.join(found)}" if found else ""
