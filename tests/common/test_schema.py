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

    def test_chunks_and_empty_tables(self) -> None:
        chunked = pa.table({"a": pa.chunked_array([[1], [], [2, None]], pa.int64())})
        schema = pa.schema([("a", pa.int8())])
        assert cast_schema(chunked, schema).column("a").to_pylist() == [1, 2, None]
        assert cast_schema(chunked.slice(0, 0), schema).schema == schema
        assert cast_schema(pa.table({"a": pa.chunked_array([], pa.int64())}), schema).num_rows == 0

    def test_a_table_without_columns_keeps_its_rows(self) -> None:
        table = pa.table({"a": [1, 2]}).select([])
        assert cast_schema(table, pa.schema([])).num_rows == table.num_rows == 2

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

    def test_nulls_are_found_where_the_schema_is_already_right(self) -> None:
        schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
        broken = pa.Table.from_arrays([pa.array([1, None])], schema=schema)
        with pytest.raises(SchemaMismatchError, match="contains nulls"):
            cast_schema(broken, schema)

    def test_missing_columns_are_filled_only_when_asked_and_allowed(self) -> None:
        table = pa.table({"id": [7]})
        with pytest.raises(SchemaMismatchError, match="name"):
            cast_schema(table, TARGET)
        assert cast_schema(table, TARGET, fill_missing=True).to_pylist() == [{"id": 7, "name": None, "price": None}]
        with pytest.raises(SchemaMismatchError, match="id"):
            cast_schema(pa.table({"name": ["x"]}), TARGET, fill_missing=True)

    def test_nothing_is_copied_when_the_types_are_right(self) -> None:
        table = pa.table({"a": [1, 2]})
        cast = cast_schema(table, table.schema)
        assert cast.column("a").chunk(0).buffers()[1].address == table.column("a").chunk(0).buffers()[1].address


class TestReconcile:
    @pytest.mark.scenario("UP-34")
    def test_the_target_keeps_order_metadata_and_nullability_and_widens(self) -> None:
        source = pa.schema([("price", pa.decimal128(5, 4)), ("name", pa.large_string()), ("id", pa.int64())])
        joined = reconcile(TARGET, source)
        assert joined.names == TARGET.names
        assert joined.metadata == TARGET.metadata
        assert joined.field("id").equals(TARGET.field("id").with_type(pa.int64()), check_metadata=True)
        assert joined.field("name").type == pa.string()
        assert joined.field("price").type == pa.decimal128(12, 4)

    def test_numbers_without_a_common_type_are_left_to_the_value_check(self) -> None:
        target = pa.schema([("a", pa.int64())])
        joined = reconcile(target, pa.schema([("a", pa.uint64())]))
        assert joined == target
        assert cast_schema(pa.table({"a": pa.array([5], pa.uint64())}), joined).column("a").to_pylist() == [5]
        with pytest.raises(SchemaMismatchError):
            cast_schema(pa.table({"a": pa.array([2**63], pa.uint64())}), joined)

    @pytest.mark.scenario("UP-35", "UP-04", "PM-05", "UP-61")
    def test_incompatible_types_name_every_column_and_what_to_do(self) -> None:
        source = pa.schema([("id", pa.string()), ("name", pa.int8()), ("price", pa.int8())])
        with pytest.raises(SchemaMismatchError) as caught:
            reconcile(TARGET, source, operation="update", path="lake/x")
        message = str(caught.value)
        for part in ("'id'", "int32", "string", "'name'", "int8", "update", "lake/x", "Cast"):
            assert part in message
        assert "'price'" not in message
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, TypeError)

    def test_strict_wants_the_same_columns_and_says_how_to_go_on(self) -> None:
        source = pa.schema([("id", pa.int32()), ("name", pa.string()), ("colour", pa.string())])
        with pytest.raises(SchemaMismatchError) as caught:
            reconcile(TARGET, source, remedy="Drop colour.")
        for part in ("price", "colour", "Drop colour.", str(TARGET.names), str(source.names)):
            assert part in str(caught.value)

    def test_evolve_appends_new_columns_and_lets_nullable_ones_lack(self) -> None:
        source = pa.schema([pa.field("colour", pa.string(), nullable=False), pa.field("id", pa.int32())])
        joined = reconcile(TARGET, source, mode="evolve")
        assert joined.names == ["id", "name", "price", "colour"]
        assert joined.field("colour").nullable

    def test_evolve_does_not_invent_values_for_a_required_column(self) -> None:
        with pytest.raises(SchemaMismatchError, match="'id'"):
            reconcile(TARGET, pa.schema([("name", pa.string())]), mode="evolve")

    def test_evolve_reaches_into_structs(self) -> None:
        old, new = pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])
        with pytest.raises(SchemaMismatchError):
            reconcile(pa.schema([("s", old)]), pa.schema([("s", new)]))
        joined = reconcile(pa.schema([("s", old)]), pa.schema([("s", new)]), mode="evolve")
        assert joined.field("s").type == pa.struct([("a", pa.int8()), ("b", pa.int8())])

    def test_duplicate_column_names_are_refused(self) -> None:
        twice = pa.schema([("id", pa.int32()), ("id", pa.int32())])
        with pytest.raises(SchemaMismatchError, match="duplicate column names"):
            reconcile(twice, TARGET)
        with pytest.raises(SchemaMismatchError, match="duplicate column names"):
            reconcile(TARGET, twice)


class TestUnifySchemas:
    @pytest.mark.scenario("UP-33", "UP-44")
    def test_types_widen_and_columns_that_some_lack_become_nullable(self) -> None:
        first = pa.schema([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.string(), nullable=False)])
        second = pa.schema([pa.field("c", pa.bool_(), nullable=False), pa.field("a", pa.int32(), nullable=False)])
        unified = unify_schemas([first, second, first])
        assert unified == pa.schema(
            [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string()), pa.field("c", pa.bool_())]
        )

    def test_the_first_appearance_gives_metadata(self) -> None:
        other = TARGET.remove_metadata()
        assert unify_schemas([TARGET, other]).equals(TARGET, check_metadata=True)

    def test_later_notes_are_kept_where_they_do_not_contradict(self) -> None:
        one = pa.schema([pa.field("a", pa.int8(), metadata={"u": "m"})], metadata={"k": "1", "both": "first"})
        two = pa.schema(
            [pa.field("a", pa.int8(), metadata={"u": "km", "v": "x"})], metadata={"l": "2", "both": "later"}
        )
        unified = unify_schemas([one, two])
        assert unified.metadata == {b"k": b"1", b"both": b"first", b"l": b"2"}
        assert unified.field("a").metadata == {b"u": b"m", b"v": b"x"}

    def test_a_column_is_nullable_when_any_is_also_inside(self) -> None:
        strict = pa.schema([("l", pa.list_(pa.field("item", pa.int8(), nullable=False)))])
        loose = pa.schema([("l", pa.list_(pa.int8()))])
        assert unify_schemas([strict, loose]) == loose
        assert unify_schemas([loose, strict]) == loose
        required = pa.schema([pa.field("a", pa.int8(), nullable=False)])
        optional = pa.schema([pa.field("a", pa.int8())])
        assert unify_schemas([required, optional]) == optional

    def test_a_struct_field_that_one_lacks_becomes_nullable(self) -> None:
        one = pa.schema([("s", pa.struct([pa.field("a", pa.int8(), nullable=False)]))])
        two = pa.schema([("s", pa.struct([pa.field("b", pa.int8(), nullable=False)]))])
        assert unify_schemas([one, two]) == pa.schema([("s", pa.struct([("a", pa.int8()), ("b", pa.int8())]))])

    @pytest.mark.scenario("UP-35")
    def test_types_without_a_common_type_name_the_column_and_both(self) -> None:
        with pytest.raises(SchemaMismatchError, match=r"'a'.*int64.*uint64"):
            unify_schemas([pa.schema([("a", pa.int64())]), pa.schema([("a", pa.uint64())])])

    def test_nothing_gives_an_empty_schema(self) -> None:
        assert unify_schemas([]) == pa.schema([])


def test_large_types_become_normal_at_any_depth() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.large_string(), nullable=False, metadata={"k": "v"}),
            pa.field("b", pa.large_list(pa.struct([("x", pa.large_binary())]))),
            pa.field("c", pa.map_(pa.large_string(), pa.large_list_view(pa.large_string()))),
            pa.field("d", pa.dictionary(pa.int8(), pa.large_string())),
            pa.field("e", pa.list_(pa.large_string(), 2)),
            pa.field("f", pa.timestamp("us", "UTC")),
        ],
        metadata={"m": "n"},
    )
    normal = pa.schema(
        [
            pa.field("a", pa.string(), nullable=False, metadata={"k": "v"}),
            pa.field("b", pa.list_(pa.struct([("x", pa.binary())]))),
            pa.field("c", pa.map_(pa.string(), pa.list_view(pa.string()))),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
            pa.field("e", pa.list_(pa.string(), 2)),
            pa.field("f", pa.timestamp("us", "UTC")),
        ],
        metadata={"m": "n"},
    )
    assert convert_large_types_to_normal(schema).equals(normal, check_metadata=True)
