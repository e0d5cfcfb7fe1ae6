"""Errors on the terminal: two lines, what is wrong and what to do, and an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from fsspeckit.cli import terminal
from fsspeckit.common.text import one_line, scrub, split_message

DONE, FAILED, USAGE, CONFLICT, INTERRUPTED = 0, 1, 2, 3, 130
_LOOK_CLOSER = "run it again with --debug to see where it comes from"
_LOOK_UP = "correct it; --help of the command says what is allowed"
DOCTOR_LOOKS = "; `fsspeckit doctor PATH` looks closer"
_LOOK_THERE = f"check the path, and the credentials of its store{DOCTOR_LOOKS}"


_REWRITE = "rewrite the files with one of the types"
"""What the library advises for a dataset whose files have different types."""


class CommandError(Exception):
    """A command cannot continue; has the action to take and the exit code."""

    def __init__(self, problem: str, remedy: str, code: int = FAILED) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.code = problem, remedy, code


def usage(problem: str, remedy: str) -> CommandError:
    """Return a usage error, with exit code 2."""
    return CommandError(problem, remedy, USAGE)


def check_target(path: Path | None, option: str) -> None:
    """Raise if an output file cannot be written; called before the command runs."""
    if path is not None and not path.parent.is_dir():
        raise usage(f"{option} {path}: there is no folder {path.parent}", "make it first, or choose another")
    if path is not None and path.is_dir():
        raise usage(f"{option} {path} is a folder", "name a file in it")


def describe(error: BaseException, words: Callable[[str], str]) -> tuple[str, str, int]:
    """Return what is wrong, what to do, and the exit code; ``words`` rewords a message for the command."""
    if isinstance(error, CommandError):
        return one_line(str(error)), one_line(error.remedy), error.code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "run it again; nothing half done is to be seen in the dataset", INTERRUPTED
    from fsspeckit.common.errors import CommitConflictError, DamagedFileError, DocumentError, FsspeckitError

    text = scrub(str(error)) or type(error).__name__
    problem, remedy = split_message(
        text if isinstance(error, DocumentError) else words(text)
    )  # messages about a document name its keys
    is_usage = type(error) is ValueError or (isinstance(error, FsspeckitError) and error.wrong_call)
    code = CONFLICT if isinstance(error, CommitConflictError) else USAGE if is_usage else FAILED
    if remedy == _REWRITE:
        remedy += ', such as with `fsspeckit write PATH NEW --cast "COLUMN TYPE"`'
    elif isinstance(error, DamagedFileError):
        remedy += "; `fsspeckit doctor PATH` names all such files"
    elif isinstance(error, PermissionError) and not remedy:
        remedy = f"check that you may read and write there{DOCTOR_LOOKS}"
    elif isinstance(error, FileNotFoundError) and not remedy:
        remedy = "check the path"
    elif isinstance(error, UnicodeError) and not remedy:
        remedy = "name files and folders in UTF-8"
    elif isinstance(error, OSError) and not remedy:
        remedy = _LOOK_THERE
    return problem, remedy or (_LOOK_UP if code == USAGE else _LOOK_CLOSER), code


def show(error: BaseException, words: Callable[[str], str], *, debug: bool, where: str = "") -> int:
    """Print an error and return its exit code."""
    problem, remedy, code = describe(error, words)
    problem = f"{where}: {problem}" if where else problem
    if debug:
        from fsspeckit.common.errors import FsspeckitError

        section = f"{error.docs}\n" if isinstance(error, FsspeckitError) else ""
        terminal.put_error(scrub("".join(traceback.format_exception(error))) + section)
    terminal.put_error(f"error: {problem}\nto do: {remedy}")
    return code
