"""The command `register`: write a dataset to a catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import usage
from fsspeckit.cli.options import Dataset
from fsspeckit.cli.settings import split_pairs
from fsspeckit.common.choices import CatalogName

_EXAMPLE = """
fsspeckit register s3://lake/orders --catalog glue --table sales.orders --keep-registered
fsspeckit register lake/orders --catalog hive --table sales.orders --catalog-option uri=thrift://metastore:9083
fsspeckit register s3://lake/orders --catalog glue --remove
"""
Catalog = Annotated[
    CatalogName, typer.Option("--catalog", help="glue: the AWS Glue Data Catalog; hive: a Hive metastore.")
]
Table = Annotated[str | None, typer.Option("--table", metavar="DB.NAME", help="Database, which must exist, and table.")]
Keep = Annotated[bool, typer.Option("--keep-registered", help="Update the table after every commit.")]
Options = Annotated[
    list[str],
    typer.Option(
        "--catalog-option",
        metavar="K=V",
        help="Of Glue: region_name, endpoint_url, profile_name, catalog_id; of Hive: uri, s3_scheme; repeatable.",
    ),
]
Remove = Annotated[bool, typer.Option("--remove", help="Delete the table. The data files stay.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "register", example=_EXAMPLE, without=("engine",))(register_dataset)


def register_dataset(
    run: Run,
    path: Dataset,
    catalog: Catalog,
    table: Table = None,
    keep_registered: Keep = False,
    catalog_option: Options = [],  # noqa: B006 - typer copies it
    remove: Remove = False,
) -> int:
    """Write a table with the columns and partitions of the dataset to a catalog, or update it.

    The table describes the folder, so readers of the catalog see the current files. With --keep-registered, commits add
    and remove partitions and columns.
    """
    from fsspeckit.core.operations import register as operations

    place = run.place(path)
    if remove:
        if table is not None or keep_registered:
            raise ValueError("--remove takes neither --table nor --keep-registered. Omit them.")
        removed = operations.unregister(place, catalog)
        facts = {"operation": "unregister", "path": place.path, "catalog": catalog, "removed": removed}
        run.say(facts, "deleted the table; the data files stay" if removed else "The dataset is not registered.")
        return 0 if removed else run.noop_exit_code
    if table is None:
        raise ValueError("--table is missing. Pass --table DB.NAME.")
    options = dict(split_pairs(catalog_option, "--catalog-option"))
    if catalog == "hive" and not options.get("uri"):
        raise usage("the address of the Hive metastore is missing", "pass --catalog-option uri=thrift://HOST:9083")
    with run.bars():
        result = operations.register(place, catalog, table, options, keep_registered=keep_registered)
    return run.finish(result, noop=False)
