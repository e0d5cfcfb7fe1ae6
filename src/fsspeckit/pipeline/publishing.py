"""Publish the datasets of a pipeline for other programs: exports and catalogs that every commit keeps current."""

from __future__ import annotations

from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations.register import is_registered, open_catalog
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline.parts import Dataset


def check_catalog(dataset: Dataset) -> None:
    """Raise if the options of the catalog of a dataset are wrong, or a package is missing."""
    if dataset.catalog is not None:
        open_catalog(dataset.catalog.name, dataset.catalog.options)


def publish(io: SparkDatasetIO, dataset: Dataset) -> None:
    """Export and register a dataset that exists as its table says. Commits keep that current."""
    place, catalog = Place.of(dataset.path, None, dataset.storage_options or None), dataset.catalog
    view = place.journal.view()
    if view.is_missing:
        return
    for kind in dataset.keep_exported:
        if kind not in view.log.kept:
            io.export(dataset.path, kind, keep_exported=True)
    if catalog is not None and not is_registered(place, catalog.name, catalog.table, catalog.options):
        io.register(
            dataset.path,
            catalog=catalog.name,
            table=catalog.table,
            keep_registered=True,
            catalog_options=catalog.options,
        )
