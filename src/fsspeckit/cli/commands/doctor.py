"""The command `doctor`: check the environment and print how to fix what does not work.

Checks run the operation itself if that is cheap: `java -version`, writing and removing a file. Spark is started only
with `--start-spark`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Literal

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import DOCTOR_LOOKS, FAILED, describe
from fsspeckit.common.install import install_command
from fsspeckit.common.text import printable

Verdict = Literal["ok", "note", "fail"]
MaybePath = Annotated[str | None, typer.Argument(metavar="PATH", help="A dataset, or the location for a new one.")]
StartSpark = Annotated[bool, typer.Option("--start-spark", help="Start a Spark session and run a job in it.")]
_EXTRAS = {
    "duckdb": ("duckdb",),
    "spark": ("pyspark", "pandas"),
    "s3": ("s3fs",),
    "gcs": ("gcsfs",),
    "azure": ("adlfs",),
    "report": ("jinja2", "matplotlib"),
}
_STORES = {
    "s3": ("s3", ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"), "~/.aws/credentials"),
    "gcs": ("gs", ("GOOGLE_APPLICATION_CREDENTIALS",), "~/.config/gcloud/application_default_credentials.json"),
    "azure": (
        "abfss",
        ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_ID"),
        "~/.azure",
    ),
}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; ``mend`` is the action to take."""

    name: str
    verdict: Verdict
    detail: str
    mend: str = ""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit doctor lake/orders --engine pyarrow"
    command(app, "doctor", example=example, without=("noop_exit_code",))(doctor)


def doctor(run: Run, path: MaybePath = None, start_spark: StartSpark = False) -> int:
    """Check Java, Spark, extras, access, credentials and the journal. Exit with 1 if a check fails."""
    engine = run.chosen_engine()
    with run.bars():
        checks = [_engine(engine), *_java_and_spark(run, engine, start=start_spark), *_extras(engine)]
        checks += [
            *_credentials(run, path),
            *(_place_checks(run, path) if path is not None else [_attempt(run, "write access", _temp)]),
        ]
    healthy = all(check.verdict != "fail" for check in checks)
    run.say({"healthy": healthy, "engine": engine, "checks": [asdict(check) for check in checks]}, _render(checks))
    return 0 if healthy else FAILED


def _render(checks: list[Check]) -> str:
    from fsspeckit.core.results import columns

    rows = [(check.verdict, check.name, check.detail) for check in checks]
    text = columns(rows)
    for title, verdicts in (("to do", ("ok", "fail")), ("only where you need it", ("note",))):
        mend = [
            f"  {check.name}: {printable(check.mend)}" for check in checks if check.mend and check.verdict in verdicts
        ]
        text += f"\n\n{title}:\n" + "\n".join(mend) if mend else ""
    return text


def _attempt(run: Run, name: str, check: Callable[[], str]) -> Check:
    """Run a check: "ok" with the text it returns, "fail" if it raises."""
    try:
        return Check(name, "ok", check())
    except Exception as error:  # noqa: BLE001 - every error is a failed check
        problem, remedy, _ = describe(error, run.words)
        return Check(name, "fail", problem, remedy.removesuffix(DOCTOR_LOOKS))


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _engine(engine: str) -> Check:
    from fsspeckit import __version__

    return Check("fsspeckit", "ok", f"{__version__}, engine {engine}, pyarrow {_installed('pyarrow')}")


def _java_and_spark(run: Run, engine: str, *, start: bool) -> Iterator[Check]:
    needed = engine == "spark"
    java = _attempt(run, "java", _java)
    spark = _installed("pyspark")
    yield java if needed or java.verdict == "ok" else Check("java", "note", "none; only Spark needs it", java.mend)
    if spark is None:
        mend = install_command("pyspark", "pandas")
        yield Check("spark", "fail" if needed else "note", "pyspark is not installed", mend)
        return
    yield Check("spark", "ok", f"pyspark {spark}")
    if start:
        yield _attempt(run, "spark session", _session)


def _java() -> str:
    from pathlib import Path

    from fsspeckit.datasets.spark.java import ensure_java, java_version

    home = ensure_java()
    return f"version {java_version(Path(home) / 'bin' / 'java')} at {home}"


def _session() -> str:
    from fsspeckit.datasets.spark.session import get_session

    spark = get_session()
    return f"Spark {spark.version} counted to {spark.range(10).count()}"


def _extras(engine: str) -> Iterator[Check]:
    for extra, packages in _EXTRAS.items():
        missing = [package for package in packages if _installed(package) is None]
        verdict: Verdict = "ok" if not missing else "fail" if extra == engine else "note"
        detail = f"{' and '.join(missing)} not installed" if missing else ", ".join(packages)
        yield Check(f"extra {extra}", verdict, detail, install_command(*missing) if missing else "")


def _credentials(run: Run, path: str | None) -> Iterator[Check]:
    """Check for credentials. Whether a store accepts them is checked only with a path."""
    from fsspeckit.core.storage import extra_of

    given = ", ".join(sorted(run.options() or {}))
    theirs = None if path is None or "://" not in path else extra_of(path) or "another"
    for store, (scheme, names, file) in _STORES.items():
        found = [name for name in names if os.environ.get(name)]
        found += [file] if os.path.exists(os.path.expanduser(file)) else []
        found += [f"storage options ({given})"] if given and theirs in (None, store) else []
        mend = "" if found else f"to use {scheme}:// URLs, set {names[0]} or pass --storage-option"
        yield Check(f"credentials {store}", "ok" if found else "note", ", ".join(found) or "none found", mend)


def _place_checks(run: Run, path: str) -> Iterator[Check]:
    yield _attempt(run, "read access", lambda: _readable(run, path))
    yield _attempt(run, "write access", lambda: _writable(run, path))
    yield _journal(run, path)


def _readable(run: Run, path: str) -> str:
    files = run.place(path).journal.view().files
    return f"{len(files):,} data files at {path}" if files else f"no dataset at {path} yet"


def _writable(run: Run, path: str) -> str:
    """Write and remove a file in the folder where a writer creates the journal, or in its nearest existing parent."""
    from uuid import uuid4

    from fsspeckit.core.storage import join, parent

    place = run.place(path)
    root = place.storage.canonical(place.root)
    folder = place.storage.sidecar_parent(root) or root
    while place.storage.has_folders and place.storage.stat(folder) is None and parent(folder) != folder:
        folder = parent(folder)
    probe = join(folder, f".fsspeckit-doctor-{uuid4().hex}")
    place.storage.write_bytes(probe, b"probe")
    place.storage.remove(probe)
    return f"a file was written to {place.storage.url(folder)} and removed"


def _temp() -> str:
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="fsspeckit-doctor-") as probe:
        probe.write(b"probe")
        return f"a file was written to {os.path.dirname(probe.name)} and removed; name a PATH to check it"


def _journal(run: Run, path: str) -> Check:
    check = _attempt(run, "journal", lambda: _journal_state(run, path))
    pending = check.verdict == "ok" and "left behind" in check.detail
    mend = f"fsspeckit recover {shlex.quote(path)}"
    return Check("journal", "fail", check.detail, mend) if pending else check


def _journal_state(run: Run, path: str) -> str:
    status = run.place(path).journal.status()
    if status.sidecar is None:
        return "none yet"
    busy = f", {len(status.alive)} writers at work" if status.alive else ""
    if status.needs_recovery:
        waiting = int(status.pending is not None)
        return f"{waiting} unfinished commits and {len(status.dead)} stagings are left behind{busy}"
    return f"nothing left over{busy}"
