"""The importers of Spark's own archives are discarded after a task, since Spark would read the archives again."""

from __future__ import annotations

import sys
import zipfile
import zipimport
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fsspeckit.datasets.spark.worker_task import WorkerTask

pytestmark = pytest.mark.more


def archive(path: Path, module: str) -> str:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{module}.py", "value = 7")
        file.writestr(f"{module}_package/__init__.py", "")
        file.writestr(f"{module}_package/inner.py", "value = 8")
    return str(path)


def importers() -> set[str]:
    found = sys.path_importer_cache.values()
    return {importer.archive for importer in found if isinstance(importer, zipimport.zipimporter)}


def test_only_the_importers_of_spark_are_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, other = archive(tmp_path / "pyspark.zip", "of_spark"), archive(tmp_path / "mine.zip", "of_user")
    monkeypatch.setattr(sys, "path", [spark, other, *sys.path])

    def body(batches: Iterable[int]) -> Iterator[int]:
        import of_spark  # type: ignore[import-not-found]
        import of_spark_package.inner  # type: ignore[import-not-found]
        import of_user  # type: ignore[import-not-found]

        yield from (number + of_spark.value + of_user.value + of_spark_package.inner.value for number in batches)

    assert list(WorkerTask(body)([1])) == [23]
    assert other in importers()
    assert spark not in importers()
    sys.modules.pop("of_spark_package.inner")
    assert list(WorkerTask(body)([1])) == [23]
    for name in ("of_spark", "of_spark_package", "of_spark_package.inner", "of_user"):
        sys.modules.pop(name, None)
