"""Joining schemas and bringing tables to one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.schema import cast_schema, convert_large_types_to_normal, reconcile, unify_schemas

TARGET = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False, metadata={"unit": "none"}),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
    ],
    metadata={"owner": "us"},
)


class TestCastSchema:
    @pytest.mark.scenario("UP-33")
    def test_columns_are_found_by_name_and_get_the_schema_as_it_is(self) -> None:
        table = pa.table({"price": [1, None], "name": pa.array(["a", None], pa.string_view()), "id": [1, 2]})
        cast = cast_schema(table, TARGET)
        assert cast.schema.equals(TARGET, check_metadata=True)
        assert cast.to_pylist() == [{"id": 1, "name": "a", "price": 1}, {"id": 2, "name": None, "price": None}]

    @pytest.mark.scenario("UP-61", "UP-63")
    def test_a_value_that_does_not_fit_names_column_types_operation_and_path(self) -> None:
        table = pa.table({"a": [2**60 + 1]})
        with pytest.raises(SchemaMismatchError) as caught:
            cast_schema(table, pa.schema([("a", pa.float64())]), operation="upsert", path="lake/events")
        assert isinstance(caught.value, pa.ArrowInvalid | pa.ArrowTypeError)
        for part in ("'a'", "int64", "double", "upsert", "lake/events"):
            assert part in str(caught.value)

    @pytest.mark.parametrize(
        ("table", "named"),
        [
            (pa.table({"a": [1], "extra": [1]}), "extra"),
            (pa.table({"b": [1]}), "'a'"),
            (pa.table([[1], [1]], names=["a", "a"]), "duplicate column names"),
            (pa.table({"a": pa.array([None], pa.int64())}), "must not be null"),
        ],
        ids=["additional", "missing", "duplicate", "null"],
    )
    def test_columns_that_do_not_fit_are_refused(self, table: pa.Table, named: str) -> None:
        with pytest.raises(SchemaMismatchError, match=named):
            cast_schema(table, pa.schema([pa.field("a", pa.int64(), nullable=False)]))


class TestReconcile:
    @pytest.mark.scenario("UP-34")
    def test_the_target_keeps_order_metadata_and_nullability_and_widens(self) -> None:
        source = pa.schema([("price", pa.decimal128(5, 4)), ("name", pa.large_string()), ("id", pa.int64())])
        assert reconcile(TARGET, source) == TARGET
        joined = reconcile(TARGET, source, mode="widen")
        assert joined.names == TARGET.names
        assert joined.metadata == TARGET.metadata
        assert joined.field("id").equals(TARGET.field("id").with_type(pa.int64()), check_metadata=True)
        assert joined.field("name").type == pa.string()
        assert joined.field("price").type == pa.decimal128(12, 4)

    @pytest.mark.scenario("UP-35", "UP-04", "PM-05", "UP-61")
    def test_incompatible_types_name_every_column_and_what_to_do(self) -> None:
        source = pa.schema([("id", pa.string()), ("name", pa.int8()), ("price", pa.int8())])
        with pytest.raises(SchemaMismatchError) as caught:
            reconcile(TARGET, source, operation="update", path="lake/x")
        message = str(caught.value)
        for part in ("'id'", "int32", "string", "'name'", "int8", "update", "lake/x", "Convert"):
            assert part in message
        assert "'price'" not in message
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, TypeError)

    def test_evolve_appends_new_columns_and_lets_nullable_ones_lack(self) -> None:
        source = pa.schema([pa.field("colour", pa.string(), nullable=False), pa.field("id", pa.int32())])
        joined = reconcile(TARGET, source, mode="evolve")
        assert joined.names == ["id", "name", "price", "colour"]
        assert joined.field("colour").nullable


class TestUnifySchemas:
    @pytest.mark.scenario("UP-33", "UP-44")
    def test_types_widen_and_columns_that_some_lack_become_nullable(self) -> None:
        first = pa.schema([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.string(), nullable=False)])
        second = pa.schema([pa.field("c", pa.bool_(), nullable=False), pa.field("a", pa.int32(), nullable=False)])
        unified = unify_schemas([first, second, first])
        assert unified == pa.schema(
            [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string()), pa.field("c", pa.bool_())]
        )

    @pytest.mark.scenario("UP-35")
    def test_types_without_a_common_type_name_the_column_and_both(self) -> None:
        with pytest.raises(SchemaMismatchError, match=r"'a'.*int64.*uint64"):
            unify_schemas([pa.schema([("a", pa.int64())]), pa.schema([("a", pa.uint64())])])


def test_large_types_become_normal_at_any_depth() -> None:
    note = {"k": "v"}
    types = [
        (pa.large_string(), pa.string()),
        (pa.large_list(pa.struct([("x", pa.large_binary())])), pa.list_(pa.struct([("x", pa.binary())]))),
        (pa.map_(pa.large_string(), pa.large_list_view(pa.int8())), pa.map_(pa.string(), pa.list_view(pa.int8()))),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.dictionary(pa.int8(), pa.string())),
        (pa.list_(pa.large_string(), 2), pa.list_(pa.string(), 2)),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    ]
    schema, normal = (
        pa.schema([pa.field(str(n), pair[side], False, note) for n, pair in enumerate(types)], note) for side in (0, 1)
    )
    assert convert_large_types_to_normal(schema).equals(normal, check_metadata=True)
