"""The program `fsspeckit`: registers all commands and defines the entry point."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from fsspeckit import __version__
from fsspeckit.cli import terminal
from fsspeckit.cli.command import Run
from fsspeckit.cli.commands import (
    adopt,
    alter,
    apply,
    apply_changes,
    changes,
    compact,
    deduplicate,
    delete,
    doctor,
    export,
    forget,
    history,
    inspect,
    merge,
    optimize,
    plan,
    recover,
    register,
    restore,
    run,
    update,
    vacuum,
    write,
)
from fsspeckit.cli.errors import show
from fsspeckit.cli.usage import usage_error

app = typer.Typer(
    name="fsspeckit",
    help="Write, merge and maintain plain Parquet dataset folders. The engine is Spark unless --engine, "
    "FSSPECKIT_ENGINE or a configuration file selects another one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _show_version(value: bool) -> None:
    if value:
        terminal.put(f"fsspeckit {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


_ROWS = (write, merge, apply_changes, update, delete)
_VERSIONS = (history, changes, restore, vacuum)
for _module in (
    *_ROWS,
    compact,
    optimize,
    deduplicate,
    alter,
    *_VERSIONS,
    adopt,
    export,
    register,
    recover,
    forget,
    inspect,
    plan,
    apply,
    run,
    doctor,
):
    _module.register(app)


def main(args: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code: 0 done, 1 failed, 2 usage, 3 conflict with another writer."""
    arguments = list(sys.argv[1:] if args is None else args)
    terminal.open_closed_streams()
    try:
        code = app(arguments, prog_name="fsspeckit", standalone_mode=False)
    except typer.TyperException as error:
        return _usage(error, as_json="--json" in arguments)
    except OSError as error:  # while printing the help page or the version; commands report their own errors
        terminal.discard(sys.stdout)
        return show(error, str, debug=False)
    return int(code or 0)


def _usage(error: typer.TyperException, *, as_json: bool) -> int:
    """Print a usage error in two lines and return its exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        terminal.put_error(context.get_help())
        return error.exit_code
    failure = usage_error(error)
    run = Run("fsspeckit", json_line=True)
    if as_json:
        run.say(run.failure_facts(failure), "")
    return show(failure, run.words, debug=False)
