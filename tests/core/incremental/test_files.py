"""The incremental module: listing, metadata, pruning, confirmation, planning, replacing, validation."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common.errors import (
    CommitConflictError,
    DamagedFileError,
    DatasetNotFoundError,
    KeyColumnError,
    SchemaMismatchError,
    StorageError,
)
from fsspeckit.core.incremental import (
    ConservativeMembershipChecker,
    IncrementalFileManager,
    ParquetFileMetadata,
    ParquetMetadataAnalyzer,
    PartitionPruner,
    confirm_affected_files,
    list_dataset_files,
    merge,
    plan_incremental_rewrite,
    validate_no_null_keys,
    validate_partition_column_immutability,
)
from fsspeckit.core.storage import LocalStorage

UTC = dt.UTC
might = ConservativeMembershipChecker().file_might_contain_keys
candidates = PartitionPruner().identify_candidate_files


def write(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def analyze(path: Path, **options: Any) -> list[ParquetFileMetadata]:
    return ParquetMetadataAnalyzer().analyze_dataset_files(str(path), **options)


def stats(lower: Any, upper: Any, nulls: int | None = 0) -> dict[str, Any]:
    return {"min": lower, "max": upper, "null_count": nulls}


def described(**columns: dict[str, Any]) -> ParquetFileMetadata:
    return ParquetFileMetadata("a.parquet", 1, 10, columns)


def tree(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*.parquet"))}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for i in range(3):
        write(tmp_path / "ds" / f"{i}.parquet", id=[10 * i + n for n in range(5)], v=["old"] * 5)
    return tmp_path / "ds"


class TestMerge:
    @pytest.mark.scenario("IO-04", "ID-04")
    def test_update_replaces_full_rows(self, tmp_path: Path) -> None:
        write(tmp_path / "ds" / "a.parquet", id=[1, 2], a=["x", "y"], b=[1.0, None])
        result = merge(
            pa.table({"id": [1], "a": [None], "b": [9.0]}).cast(
                pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.float64())])
            ),
            str(tmp_path / "ds"),
            "update",
            ["id"],
        )
        assert (result.updated, result.inserted) == (1, 0)
        [path] = result.rewritten_files
        assert pq.read_table(path).to_pylist()[0] == {"id": 1, "a": None, "b": 9.0}

    @pytest.mark.parametrize("strategy", ["full_merge", "deduplicate", "replace"])
    def test_other_strategies_are_refused(self, dataset: Path, strategy: Any) -> None:
        with pytest.raises(ValueError, match="is not incremental"):
            merge(pa.table({"id": [1], "v": ["new"]}), str(dataset), strategy, ["id"])


class TestListing:
    def test_data_files_are_sorted_and_start_with_the_given_path(
        self, dataset: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for hidden in ("_tmp/x.parquet", ".hidden.parquet"):
            write(dataset / hidden, id=[1])
        (dataset / "README.txt").write_text("no rows")
        monkeypatch.chdir(dataset.parent)
        assert list_dataset_files("ds") == ["ds/0.parquet", "ds/1.parquet", "ds/2.parquet"]

    def test_missing_is_an_error_and_empty_is_not(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        assert list_dataset_files(str(tmp_path / "empty")) == []
        with pytest.raises(DatasetNotFoundError):
            list_dataset_files(str(tmp_path / "missing"))


WIDE = Decimal("1234567890123456789012345678901.25")
MOMENT = dt.datetime.fromisoformat("2024-02-29T12:30:01.000005")
COLUMNS: dict[str, tuple[pa.Array, Any, Any]] = {
    "int8": (pa.array([3, -1, 2], pa.int8()), -1, 3),
    "uint64": (pa.array([2**64 - 1, 0, 7], pa.uint64()), 0, 2**64 - 1),
    "text": (pa.array(["b", "é", "a"]), "a", "é"),
    "category": (pa.array(["b", "c", "a"]).dictionary_encode(), "a", "c"),
    "fixed": (pa.array([b"bb", b"cc", b"aa"], pa.binary(2)), b"aa", b"cc"),
    "decimal": (pa.array([Decimal("1.50"), Decimal("-3.00"), Decimal("2.25")]), Decimal("-3.00"), Decimal("2.25")),
    "date": (pa.array([dt.date(2024, 1, d) for d in (2, 1, 3)]), dt.date(2024, 1, 1), dt.date(2024, 1, 3)),
    "moment": (pa.array([MOMENT] * 3), MOMENT, MOMENT),
    "zoned": (
        pa.array([MOMENT.replace(tzinfo=UTC)] * 3, pa.timestamp("ms", "Asia/Tokyo"), safe=False),
        MOMENT.replace(tzinfo=UTC, microsecond=0),
        MOMENT.replace(tzinfo=UTC, microsecond=0),
    ),
    "wide_decimal": (pa.array([WIDE, -WIDE, Decimal(0)], pa.decimal128(33, 2)), -WIDE, WIDE),
    "duration": (pa.array([dt.timedelta(n) for n in (5, 1, 2)]), dt.timedelta(1), dt.timedelta(5)),
}
UNKNOWN: dict[str, pa.Array] = {
    "nanoseconds": pa.array([1, 2, 1001], pa.timestamp("ns")),
    "all_null": pa.array([None, None, None], pa.int64()),
    "far_future": pa.array([2**60, 2**60, 2**60], pa.timestamp("us")),
}


class TestMetadata:
    def test_typed_bounds_over_all_row_groups(self, tmp_path: Path) -> None:
        table = pa.table({name: values for name, (values, *_) in COLUMNS.items()} | UNKNOWN)
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
        [file] = analyze(tmp_path)
        assert (file.row_group_count, file.total_rows) == (3, 3)
        for name, (_, lower, upper) in COLUMNS.items():
            assert file.column_stats[name] == stats(lower, upper), name
            assert type(file.column_stats[name]["min"]) is type(lower)
        for name, column in UNKNOWN.items():
            assert file.column_stats[name] == stats(None, None, column.null_count), name

    def test_files_without_statistics(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet", write_statistics=False)
        assert analyze(tmp_path)[0].column_stats == {"id": stats(None, None, None)}


def in_partition(**values: Any) -> ParquetFileMetadata:
    return ParquetFileMetadata("/".join(f"{k}={v}" for k, v in values.items()), 1, 1, {}, values)


class TestPartitionPruner:
    @pytest.mark.scenario("IO-01", "ID-01")
    def test_only_files_of_the_keys_partitions_and_unknown_ones_are_candidates(self) -> None:
        files = [in_partition(day="2025-01-01"), in_partition(day="2025-01-02"), in_partition(other="1")]
        unknown = ParquetFileMetadata("unknown", 1, 1, {}, None)
        keys = [(1, "2025-01-02"), (2, "2025-01-02")]
        assert candidates([*files, unknown], ["id", "day"], keys) == ["day=2025-01-02", "other=1", "unknown"]

    @pytest.mark.parametrize(
        ("folders", "keys", "expected"),
        [
            (["01", "1", "2"], [1], ["m=01", "m=1"]),
            (["2024-01-01", "2024-01-02"], [dt.date(2024, 1, 2)], ["m=2024-01-02"]),
            (["a b", "x/y"], ["x/y"], ["m=x/y"]),
            (["1", None], [None, "x"], ["m=None"]),
            (["1", "word"], [1], ["m=1", "m=word"]),
            (["1", "2"], [""], ["m=1", "m=2"]),
        ],
    )
    def test_folder_values_are_parsed_as_the_keys_type(
        self, folders: list[Any], keys: list[Any], expected: list[str]
    ) -> None:
        assert candidates([in_partition(m=text) for text in folders], ["m"], keys) == expected

    def test_partition_schema_sets_partition_columns_and_types(self) -> None:
        files = [in_partition(m="01"), in_partition(m="2")]
        assert candidates(files, ["m"], ["1"], pa.schema([("m", pa.int32())])) == ["m=01"]
        assert candidates(files, ["m"], ["1"], pa.schema([("other", pa.int32())])) == ["m=01", "m=2"]
        assert candidates(files, ["m"], ["word"], pa.schema([("m", pa.int32())])) == ["m=01", "m=2"]


KINDS = [
    (st.integers(-9, 9), pa.int64()),
    (st.floats(), pa.float64()),
    (st.text(max_size=3), pa.string()),
    (st.dates(), pa.date32()),
    (st.datetimes(), pa.timestamp("us")),
]


class TestMembership:
    @pytest.mark.scenario("IO-02", "ID-02")
    @pytest.mark.parametrize(
        ("keys", "expected"), [([5, 25], False), ([5, 10], True), ([20, 99], True), ([15], True), ([], False)]
    )
    def test_keys_are_a_set_not_a_range(self, keys: list[int], expected: bool) -> None:
        assert might(described(id=stats(10, 20)), ["id"], keys) is expected

    @pytest.mark.scenario("IO-03", "ID-03")
    @pytest.mark.parametrize(
        "known",
        [
            {},
            {"id": stats(None, None)},
            {"id": stats(10, None)},
            {"id": stats(float("nan"), 20.0)},
            {"id": stats(20, 10)},
            {"id": stats("10", "20")},
            {"id": stats(dt.date(2024, 1, 1), dt.date(2024, 1, 2))},
        ],
    )
    def test_missing_or_inexact_statistics_keep_the_file(self, known: dict[str, Any]) -> None:
        assert might(ParquetFileMetadata("a", 1, 1, known), ["id"], [99])

    @given(data=st.data())
    def test_a_file_that_contains_a_key_is_never_excluded(
        self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        values, type_ = data.draw(st.sampled_from(KINDS))
        rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
        keys = data.draw(st.lists(st.none() | values, max_size=4))
        folder = tmp_path_factory.mktemp("ds")
        column = pa.array(rows, type_)
        pq.write_table(pa.table({"k": column}), folder / "a.parquet", row_group_size=2)
        [file] = analyze(folder)
        holds = any(key == row or (key != key and row != row) for key in keys for row in rows)
        assert might(file, ["k"], keys) or not holds
        if holds:
            assert confirm_affected_files([file.path], ["k"], keys) == [file.path]


class TestConfirmation:
    def test_files_with_a_key_are_returned_as_given_and_in_order(
        self, dataset: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(dataset)
        assert confirm_affected_files(["2.parquet", "./1.parquet", "0.parquet"], ["id"], [20, 3, 3, 7]) == [
            "2.parquet",
            "0.parquet",
        ]
        assert confirm_affected_files([], ["id"], [1]) == []
        assert confirm_affected_files(["0.parquet"], ["id"], []) == []

    @pytest.mark.parametrize("stored", [pa.int32(), pa.uint64(), pa.float64(), pa.decimal128(25, 3)])
    def test_keys_are_compared_after_both_sides_have_one_type(self, tmp_path: Path, stored: pa.DataType) -> None:
        path = write(tmp_path / "a.parquet", id=pa.array([1, 2]).cast(stored))
        assert confirm_affected_files([path], ["id"], [2]) == [path]
        assert confirm_affected_files([path], ["id"], [3]) == []

    def test_files_that_cannot_be_checked_are_an_error(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.parquet", id=[1])
        with pytest.raises(SchemaMismatchError):
            confirm_affected_files([path], ["id"], ["1"])
        with pytest.raises(KeyColumnError, match="nope"):
            confirm_affected_files([path], ["nope"], [1])
        with pytest.raises(FileNotFoundError, match="missing"):
            confirm_affected_files([path, str(tmp_path / "missing.parquet")], ["id"], [1])
        Path(path).write_bytes(b"PAR1 nothing PAR1")
        with pytest.raises(DamagedFileError, match=r"a\.parquet"):
            confirm_affected_files([path], ["id"], [1])


class TestPlan:
    @pytest.mark.scenario("IO-12")
    def test_every_file_is_affected_or_not(self, dataset: Path) -> None:
        plan = plan_incremental_rewrite(str(dataset), [3, 13, 17], ["id"])
        files = list_dataset_files(str(dataset))
        assert (plan.affected_files, plan.unaffected_files, plan.affected_rows) == (files[:2], files[2:], 10)
        assert [Path(path).parent for path in plan.new_files] == [dataset]
        assert set(plan.new_files).isdisjoint(files)
        assert tree(dataset).keys() == {"0.parquet", "1.parquet", "2.parquet"}

    @pytest.mark.scenario("IO-03", "ID-03")
    def test_files_without_statistics_are_scanned(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet", write_statistics=False)
        pq.write_table(pa.table({"id": [3, 4]}), tmp_path / "b.parquet", write_statistics=False)
        plan = plan_incremental_rewrite(str(tmp_path), [4], ["id"])
        assert [Path(path).name for path in plan.affected_files] == ["b.parquet"]


class TestReplacing:
    def test_staged_files_appear_all_at_once(self, dataset: Path) -> None:
        manager = IncrementalFileManager()
        staging = Path(manager.create_staging_directory(str(dataset)))
        assert staging.is_dir()
        assert staging.name.startswith(".staging_")
        sources = [write(staging / f"{i}.new", id=[i], v=["new"]) for i in range(2)]
        before = list_dataset_files(str(dataset))
        assert len(before) == 3
        manager.atomic_replace_files(sources, before[:2])
        assert list_dataset_files(str(dataset)) == before
        assert [pq.read_table(path).num_rows for path in before] == [1, 1, 5]
        assert not staging.exists()

    @pytest.mark.parametrize(
        ("spoil", "error"),
        [
            (lambda s, t: (s, t[:1]), ValueError),
            (lambda s, t: ([s[0], s[0]], t), ValueError),
            (lambda s, t: (s, [t[0], t[0]]), ValueError),
            (lambda s, t: ([s[0], s[1] + ".missing"], t), FileNotFoundError),
            (lambda s, t: (s, [t[0], str(Path(t[1]).with_name("_hidden.parquet"))]), ValueError),
        ],
    )
    def test_everything_is_checked_before_the_first_change(
        self, dataset: Path, tmp_path: Path, spoil: Callable[[Any, Any], Any], error: type[Exception]
    ) -> None:
        sources = [write(tmp_path / f"{i}.parquet", id=[i], v=["new"]) for i in range(2)]
        sources, targets = spoil(sources, list_dataset_files(str(dataset))[:2])
        before = tree(dataset)
        with pytest.raises(error):
            IncrementalFileManager().atomic_replace_files(sources, targets)
        assert tree(dataset) == before

    def test_a_change_by_another_writer_is_a_conflict(self, dataset: Path) -> None:
        manager = IncrementalFileManager()
        staging = Path(manager.create_staging_directory(str(dataset)))
        source = write(staging / "x", id=[0], v=["mine"])
        merge(pa.table({"id": [0], "v": ["theirs"]}), str(dataset), "update", ["id"])
        before = tree(dataset)
        with pytest.raises(CommitConflictError):
            manager.atomic_replace_files([source], [str(dataset / "0.parquet")])
        assert tree(dataset) == before
        assert not staging.exists()


class TestCleanUp:
    @pytest.mark.scenario("UP-65")
    def test_one_failure_is_logged_and_the_others_are_removed(
        self, dataset: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        manager = IncrementalFileManager()
        stuck, free = (Path(manager.create_staging_directory(str(dataset))) for _ in range(2))
        remove = LocalStorage.remove_tree

        def remove_unless_stuck(self: LocalStorage, path: str) -> None:
            if path == str(stuck):
                raise StorageError(f"cannot remove {path}")
            remove(self, path)

        monkeypatch.setattr(LocalStorage, "remove_tree", remove_unless_stuck)
        with caplog.at_level(logging.WARNING, "fsspeckit"):
            manager.cleanup_staging_files()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert stuck.name in caplog.text
        assert (stuck.exists(), free.exists()) == (True, False)


class TestValidation:
    @pytest.mark.scenario("UP-03", "PM-04")
    def test_null_keys(self) -> None:
        table = pa.table({"id": [1, 2], "k": ["a", None]})
        validate_no_null_keys(table, ["id"])
        with pytest.raises(ValueError, match="'k' of the source has 1 NULL"):
            validate_no_null_keys(table, ["id", "k"])
        with pytest.raises(KeyColumnError, match="nope"):
            validate_no_null_keys(table, ["nope"])

    @pytest.mark.scenario("IO-05", "ID-05")
    def test_partition_columns_cannot_change_for_existing_keys(self) -> None:
        target = pa.table({"id": [1, 2], "day": ["mon", "tue"]})
        validate_partition_column_immutability(pa.table({"id": [1, 3], "day": ["mon", "wed"]}), target, ["id"], ["day"])
        with pytest.raises(ValueError, match=r"cannot change for existing keys.*'id': 2"):
            validate_partition_column_immutability(
                pa.table({"id": [2, 3], "day": ["mon", "mon"]}), target, ["id"], ["day"]
            )
