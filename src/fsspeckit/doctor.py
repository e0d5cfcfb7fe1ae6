"""Check the environment of fsspeckit and the place of a dataset: what works, and how to fix what does not.

Checks run the operation itself if that is cheap: `java -version`, writing and removing a file. Spark is started only
if the caller asks for it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from fsspeckit.common.install import extras, install_command
from fsspeckit.common.text import counted, printable, scrub, shortened, split_message
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.result_view import ResultMapping, columns

Verdict = Literal["ok", "note", "fail"]
Describe = Callable[[Exception], tuple[str, str]]
"""Returns what is wrong, and what to do."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis(ResultMapping):
    """All checks; ``healthy`` if none fails."""

    healthy: bool
    engine: str
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        text = columns([(check.verdict, check.name, check.detail) for check in self.checks])
        for title, verdicts in (("to do", ("ok", "fail")), ("only where you need it", ("note",))):
            mend = [
                f"  {each.name}: {printable(each.mend)}"
                for each in self.checks
                if each.mend and each.verdict in verdicts
            ]
            text += f"\n\n{title}:\n" + "\n".join(mend) if mend else ""
        return text


def diagnose(
    path: Any,
    engine: str,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    start_spark: bool = False,
    describe: Describe | None = None,
) -> Diagnosis:
    """Run all checks.

    Args:
        path: A dataset, the location for a new one, or None.
        engine: The engine that will be used; what only other engines need is a note.
        filesystem: The fsspec filesystem of the path.
        storage_options: Options for the filesystem of a URL.
        start_spark: Start a Spark session and run a job in it.
        describe: Describes an error in the words of another interface.

    Examples:
        >>> import tempfile
        >>> found = diagnose(tempfile.mkdtemp() + "/events", "pyarrow")
        >>> found.healthy, found.checks[0].name
        (True, 'fsspeckit')
    """
    doctor = _Doctor(path, engine, filesystem, storage_options, describe or _describe)
    checks = tuple(doctor.checks(start_spark=start_spark))
    return Diagnosis(all(check.verdict != "fail" for check in checks), engine, checks)


def _describe(error: Exception) -> tuple[str, str]:
    return split_message(scrub(str(error)) or type(error).__name__)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Doctor:
    path: Any
    engine: str
    filesystem: Any
    storage_options: Mapping[str, Any] | None
    describe: Describe

    def checks(self, *, start_spark: bool) -> Iterator[Check]:
        yield self._engine()
        java, *spark = self._java_and_spark(start=start_spark)
        yield from (java, *spark)
        yield from self._extras(has_java=java.verdict == "ok")
        yield from self._credentials()
        if self.path is None:
            yield self._attempt("write access", _temp)
            return
        yield self._attempt("read access", self._readable)
        yield from self._data_files()
        yield self._attempt("write access", self._writable)
        yield self._attempt("two writers", self._exclusive_create)
        yield self._journal()

    def _attempt(self, name: str, check: Callable[[], str]) -> Check:
        """Run a check: "ok" with the text it returns, "fail" if it raises."""
        try:
            return Check(name, "ok", check())
        except Exception as error:  # noqa: BLE001 - every error is a failed check
            return Check(name, "fail", *self.describe(error))

    def _engine(self) -> Check:
        versions = f"{_installed('fsspeckit')}, engine {self.engine}, pyarrow {_installed('pyarrow')}"
        return Check("fsspeckit", "ok", versions)

    def _java_and_spark(self, *, start: bool) -> Iterator[Check]:
        needed = self.engine == "spark"
        java = self._attempt("java", _java)
        spark = _installed("pyspark")
        yield java if needed or java.verdict == "ok" else Check("java", "note", "none; only Spark needs it", java.mend)
        if spark is None:
            mend = install_command("pyspark", "pandas")
            yield Check("spark", "fail" if needed else "note", "pyspark is not installed", mend)
            return
        yield Check("spark", "ok", f"pyspark {spark}")
        if start:
            yield self._attempt("spark session", _session)

    def _extras(self, *, has_java: bool) -> Iterator[Check]:
        for extra, packages in extras().items():
            if extra == "java" and has_java:
                yield Check("extra java", "ok", "Java is installed")
                continue
            missing = [package for package in packages if _installed(package) is None]
            verdict: Verdict = "ok" if not missing else "fail" if extra == self.engine else "note"
            detail = f"{' and '.join(missing)} not installed" if missing else ", ".join(packages)
            yield Check(f"extra {extra}", verdict, detail, install_command(*missing) if missing else "")

    def _credentials(self) -> Iterator[Check]:
        """Check for credentials. Whether a store accepts them is checked only with a path."""
        from fsspeckit.core.storage import extra_of

        given = ", ".join(sorted(self.storage_options or {}))
        url = self.path if isinstance(self.path, str) and "://" in self.path else None
        theirs = None if url is None else extra_of(url) or "another"
        for store, (scheme, names, file) in _STORES.items():
            found = [name for name in names if os.environ.get(name)]
            found += [file] if os.path.exists(os.path.expanduser(file)) else []
            found += [f"storage options ({given})"] if given and theirs in (None, store) else []
            mend = "" if found else f"to use {scheme}:// URLs, set {names[0]} or pass storage_options"
            yield Check(f"credentials {store}", "ok" if found else "note", ", ".join(found) or "none found", mend)

    def _place(self) -> Place:
        return Place.of(self.path, self.filesystem, self.storage_options)

    def _readable(self) -> str:
        place = self._place()
        view = place.journal.view()
        place.journal.check_not_lost(view)
        files = view.files
        return f"{counted(len(files), 'data file')} at {place.path}" if files else f"no dataset at {place.path} yet"

    def _data_files(self) -> Iterator[Check]:
        """Read the footers of all files, name those that cannot be read, and the visible files that are not Parquet."""
        from fsspeckit.common.errors import DamagedFileError, UnsupportedDataError
        from fsspeckit.core.model import ViewFile
        from fsspeckit.core.parquet.data_files import read_data_files
        from fsspeckit.core.storage import for_each

        bad: list[str] = []
        int96: set[str] = set()
        others: list[str] = []

        def look() -> str:
            place = self._place()
            view = place.journal.view()
            files = view.files
            others.extend(entry.path for entry in view.others)

            def read(file: ViewFile) -> None:
                try:
                    (found,) = read_data_files(place.storage, [file], ())
                    int96.update(found.int96)
                except (DamagedFileError, UnsupportedDataError):
                    bad.append(file.path)

            for_each(place.storage, read, files)
            if not int96:
                return f"the footers of {counted(len(files), 'file')} are readable"
            return (
                f"the footers of {counted(len(files), 'file')} are readable; INT96 timestamps in "
                f"{', '.join(sorted(int96))}, for 64-bit ones run: "
                f"fsspeckit alter {shlex.quote(str(self.path))} --timestamps micros"
            )

        check = self._attempt("data files", look)
        if bad:
            detail = f"{counted(len(bad), 'file')} cannot be read as Parquet: {shortened(sorted(bad))}"
            check = Check("data files", "fail", detail, "restore these files, or move them out of the dataset")
        yield check
        if others:
            detail = f"{counted(len(others), 'visible file')} not read, because not Parquet: {shortened(others)}"
            yield Check("other files", "note", detail, "other readers may fail on them: move them out of the dataset")

    def _writable(self) -> str:
        """Write and remove a file in the folder where a writer creates the journal, or in its nearest parent."""
        from uuid import uuid4

        from fsspeckit.core.storage import join, parent

        place = self._place()
        root = place.storage.canonical(place.root)
        folder = place.storage.sidecar_parent(root) or root
        while place.storage.has_folders and place.storage.stat(folder) is None and parent(folder) != folder:
            folder = parent(folder)
        probe = join(folder, f".fsspeckit-doctor-{uuid4().hex}")
        place.storage.write_bytes(probe, b"probe")
        place.storage.remove(probe)
        return f"a file was written to {place.storage.url(folder)} and removed"

    def _exclusive_create(self) -> str:
        """Create a file twice where the journal is, or would be."""
        self._place().journal.probe()
        return "of two writers that commit at once, the storage refuses one"

    def _journal(self) -> Check:
        check = self._attempt("journal", self._journal_state)
        pending = check.verdict == "ok" and "left behind" in check.detail
        mend = f"fsspeckit recover {shlex.quote(str(self.path))}"
        return Check("journal", "fail", check.detail, mend) if pending else check

    def _journal_state(self) -> str:
        status = self._place().journal.status()
        if status.sidecar is None:
            return "none yet"
        busy = f", {len(status.alive)} writers at work" if status.alive else ""
        if status.needs_recovery:
            waiting = int(status.pending is not None)
            return f"{waiting} unfinished commits and {len(status.dead)} stagings are left behind{busy}"
        return f"nothing left over{busy}"


def _java() -> str:
    from pathlib import Path

    from fsspeckit.datasets.spark.java import ensure_java, java_version

    home = ensure_java()
    return f"version {java_version(Path(home) / 'bin' / 'java')} at {home}"


def _session() -> str:
    from fsspeckit.datasets.spark.session import get_session

    spark = get_session()
    return f"Spark {spark.version} counted to {spark.range(10).count()}"


def _temp() -> str:
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="fsspeckit-doctor-") as probe:
        probe.write(b"probe")
        return f"a file was written to {os.path.dirname(probe.name)} and removed; name a PATH to check it"
