"""One run of a command: shared options, logging, progress, output and error handling.

Results go to standard output, as a table or as one line of JSON; logs, progress and errors go to standard error.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from fsspeckit.cli import errors, progress, terminal
from fsspeckit.cli.options import SOURCE, OptionTable
from fsspeckit.cli.settings import load_config, parse_options
from fsspeckit.cli.wording import as_options
from fsspeckit.common.cache import is_first_time
from fsspeckit.common.choices import DEFAULT_ENGINE, DEFAULT_PUBLISH, EngineName, PublishMode

if TYPE_CHECKING:
    from fsspeckit.core.dataset.place import Place
    from fsspeckit.core.operations.row_sample import RowSample
    from fsspeckit.datasets.io import DatasetIO

_ENGINES = (
    "note: Spark, the default engine, takes some seconds to start. --engine pyarrow and --engine duckdb start at once "
    "and suit data of one machine; FSSPECKIT_ENGINE=pyarrow selects one for all commands. This note is shown once."
)
_PANEL: OptionTable = {
    "engine": (
        Annotated[
            EngineName | None,
            typer.Option("--engine", envvar="FSSPECKIT_ENGINE", help="Engine that runs the operation; default: spark."),
        ],
        None,
    ),
    "storage_option": (
        Annotated[
            list[str], typer.Option("--storage-option", metavar="K=V", help="Filesystem option for URLs; repeatable.")
        ],
        [],
    ),
    "publish": (
        Annotated[
            PublishMode | None,
            typer.Option("--publish", help="How a commit becomes visible on local disks; default: new_names."),
        ],
        None,
    ),
    "config": (
        Annotated[Path | None, typer.Option("--config", envvar="FSSPECKIT_CONFIG", help="TOML configuration file.")],
        None,
    ),
    "json_line": (Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")], False),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")], False),
    "verbose": (Annotated[bool, typer.Option("--verbose", "-v", help="Show the log on standard error.")], False),
    "no_progress": (Annotated[bool, typer.Option("--no-progress", help="Do not show progress bars.")], False),
    "noop_exit_code": (
        Annotated[
            int, typer.Option("--noop-exit-code", metavar="N", min=0, max=255, help="Exit code if nothing changes.")
        ],
        0,
    ),
    "debug": (Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")], False),
}


@dataclass(frozen=True, slots=True)
class Run:
    """The name of a command and the values of its shared options."""

    command: str
    offered: frozenset[str] = frozenset()
    engine: EngineName | None = None
    storage_option: list[str] = field(default_factory=list)
    publish: PublishMode | None = None
    config: Path | None = None
    json_line: bool = False
    quiet: bool = False
    verbose: bool = False
    no_progress: bool = False
    noop_exit_code: int = 0
    debug: bool = False

    def chosen_engine(self, otherwise: str = DEFAULT_ENGINE) -> str:
        """Return the engine: from the option, the environment, the configuration file, or the given default."""
        return self.engine or load_config(self.config).get("engine") or otherwise

    def chosen_publish(self) -> PublishMode:
        """Return how commits become visible: from the option, the configuration file, or the default."""
        return self.publish or load_config(self.config).get("publish") or DEFAULT_PUBLISH

    def options(self) -> dict[str, Any] | None:
        """Return the storage options of the configuration file, overridden by those of the command line."""
        return load_config(self.config).get("storage_options", {}) | parse_options(self.storage_option) or None

    def io(self, otherwise: str = DEFAULT_ENGINE) -> DatasetIO:
        """Return a `DatasetIO` for the selected engine."""
        from fsspeckit.api import dataset_io

        engine = self.chosen_engine(otherwise)
        logging.getLogger(__name__).info("%s runs on the engine %s", self.command, engine)
        if engine == "spark" and not self.quiet and not self.json_line and sys.stderr.isatty():
            self._explain_engines()
        return dataset_io(engine, storage_options=self.options(), publish=self.chosen_publish())

    def _explain_engines(self) -> None:
        """Print once, to a user who has not chosen an engine, that there are others."""
        if self.engine is None and "engine" not in load_config(self.config) and is_first_time("engines-explained"):
            terminal.put_error(_ENGINES)

    def place(self, path: str) -> Place:
        """Return the location of a dataset; needs no engine."""
        from fsspeckit.core.dataset.place import Place

        place = Place.of(path, None, self.options())
        place.journal.publish = self.chosen_publish()
        return place

    def words(self, message: str) -> str:
        """Replace parameter names in a message of the library by the options of this command."""
        return as_options(message, self.offered)

    def failure_facts(self, error: BaseException) -> dict[str, Any]:
        """Return an error as the JSON object that `--json` prints."""
        problem, remedy, code = errors.describe(error, self.words)
        return {"error": type(error).__name__, "message": problem, "to_do": remedy, "exit_code": code}

    @contextmanager
    def bars(self, waits_for: str = "") -> Iterator[Callable[[Any], None] | None]:
        """Yield a progress callback, or None if no bars are shown. First they show what is waited for."""
        if not progress.wanted(quiet=self.quiet, no_progress=self.no_progress):
            yield None
            return
        with progress.Bars(self.command, waits_for or ("starting Spark" if self._starts_spark() else "")) as bars:
            yield bars

    def _starts_spark(self) -> bool:
        return self.command == "run" or ("--engine" in self.offered and self.chosen_engine() == "spark")

    def say(self, result: Mapping[str, Any], text: str) -> None:
        """Print a result as JSON or as text, as the options require."""
        line = json.dumps(result, default=str) if self.json_line else "" if self.quiet else text.rstrip("\n")
        if line:
            terminal.put(line)

    def existed(self, path: str, *, must_exist: bool) -> bool:
        """Return whether a dataset exists. Raise if it must and does not."""
        exists = self.place(path).journal.view(consistent=False).exists
        if must_exist and not exists:
            raise errors.CommandError(f"there is no dataset at {path}", "check the path, or leave --must-exist out")
        return exists

    def finish(self, result: Any, *, noop: bool = False, existed: bool = True, sample: RowSample | None = None) -> int:
        """Print a result of the library and its rows, say whether the dataset is new, and return the exit code."""
        facts, text = result.to_dict(), str(result)
        if sample is not None:
            from fsspeckit.report.change_page import render_sample

            facts, text = facts | {"sample": sample.as_json()}, f"{text}\n{render_sample(sample)}"
        if not existed:
            facts = facts | {"new_dataset": not noop}
            text = ("there is no dataset, so nothing was done\n" if noop else "new dataset\n") + text
        self.say(facts, text)
        return self.noop_exit_code if noop else errors.DONE


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    options: OptionTable | None = None,
    without: tuple[str, ...] = (),
    commits: bool = False,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a function `(run, ...) -> exit code` with the shared options and an example in its help.

    A parameter `options` of the function stands for a table of options: it gets those that have a value. A parameter
    `reading` stands for the options of a source. A command that ``commits`` has the option `--publish`.
    """
    tables = {"options": options or {}, "reading": SOURCE}

    def register(function: Callable[..., int]) -> Callable[..., int]:
        own = inspect.signature(function, eval_str=True)
        left_out = without if commits else (*without, "publish")
        shared = {key: value for key, value in _PANEL.items() if key not in left_out}
        parameters = list[inspect.Parameter]()
        for each in own.parameters.values():
            if each.name in tables:
                parameters += _parameters(tables[each.name])
            elif each.name != "run":
                parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        parameters += _parameters(shared)
        offered = frozenset(option for each in parameters for option in _options_of(each.annotation))

        def call(**values: Any) -> int:
            run = Run(name, offered, **{key: values.pop(key) for key in shared})
            for table in tables.keys() & own.parameters.keys():
                given = {key: values.pop(key) for key in tables[table]}
                values[table] = {key: value for key, value in given.items() if value is not None and value != []}
            return execute(run, lambda: function(run, **values))

        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {}
        call.__doc__ = function.__doc__
        epilog = "Example:\n\n\b\n" + "\n".join(f"  {line}" for line in example.strip().splitlines())
        app.command(name, epilog=epilog)(call)
        return function

    return register


def _parameters(table: OptionTable) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(key, kind, default=each[1], annotation=each[0]) for key, each in table.items()]


def _options_of(annotation: Any) -> list[str]:
    """Return the long names of an option; none for an argument. Typer stores the first name as the default."""
    found = [each for each in get_args(annotation) if isinstance(each, typer.models.OptionInfo)]
    names = [name for each in found for name in (each.default, *(each.param_decls or ()))]
    return [name for name in names if isinstance(name, str) and name.startswith("--")]


def execute(run: Run, work: Callable[[], int]) -> int:
    """Run a command; print an error as two lines and return its exit code."""
    try:
        with _logging(run):
            return work()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - every error is printed as two lines
        code = errors.show(error, run.words, debug=run.debug)
        if run.json_line:
            with suppress(OSError):  # standard output may be the stream that failed
                run.say(run.failure_facts(error), "")
        return code


class _Terminal(logging.Handler):
    """Writes log records to the current standard error, which rich replaces while progress bars are shown.

    The library logs an unexpected error with its traceback before it raises it. Without `--verbose` that record is
    dropped, because the error is printed as two lines.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        from fsspeckit.common.logging import UNEXPECTED
        from fsspeckit.common.text import printable, scrub

        if hasattr(record, UNEXPECTED) and not self._run.verbose:
            return
        message = printable(self._run.words(record.getMessage()))
        terminal.put_error(scrub(f"{record.levelname.lower()}: {record.name}: {message}"))


@contextmanager
def _logging(run: Run) -> Iterator[None]:
    """Send the library's log to standard error: warnings by default, all with `--verbose`, critical with `--quiet`."""
    logger, handler = logging.getLogger("fsspeckit"), _Terminal(run)
    level, before = logging.DEBUG if run.verbose else logging.CRITICAL if run.quiet else logging.WARNING, logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
