"""The metadata of data sets, as the tools keep it and read it.

The entries ``source <id>`` are the files that `convert` converted into a data set. The metadata keeps the entries of
all commits. If a writer has replaced the data set since a file was converted, the file's records are gone, so its entry
no longer counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from asyncrec._numpy import np
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.replaced import replaced_writers
from asyncrec.errors import DatasetError, SchemaError
from asyncrec.tools._selection import Selection

_SOURCE = "source "
_ARROW_SCHEMA = "ARROW:schema"


class Conversions(NamedTuple):
    """The files converted into a data set, according to its metadata.

    Attributes:
        metadata: the metadata, without the entries of files whose records were replaced.
        replaced: the ids of the jobs that converted these files.
    """

    metadata: Mapping[str, Any]
    replaced: frozenset[str] = frozenset()


def conversions_of(manifest: Manifest, name: str) -> Conversions:
    """Return the conversions in the metadata of the data set ``name``. Blocks."""
    history = manifest.shards.history
    commits, values = history.commits, history.values
    having = [number for number, value in enumerate(values) if any(each.startswith(_SOURCE) for each in value)]
    rows = np.flatnonzero(np.isin(commits["metadata"], having)).tolist()
    by = {row: history.writers[commits["writer"][row]] for row in rows}
    replaced = replaced_writers(history, name, {*by.values()})
    if not replaced:
        return Conversions(manifest.metadata)
    left: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: (commits["time"][row], by[row])):
        if by[row] not in replaced:
            left.update(values[commits["metadata"][row]])
    metadata = {key: value for key, value in manifest.metadata.items() if not key.startswith(_SOURCE)}
    entries = {key: value for key, value in left.items() if key.startswith(_SOURCE)}
    return Conversions({**metadata, **entries}, replaced)


def metadata_of(selections: Sequence[Selection], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the data sets, combined with the description of how the target was made. Blocks.

    Raises:
        DatasetError: two data sets have different labels, so the same number is a different class in each.
        SchemaError: two data sets store times of a column in different units.
    """
    metadata: dict[str, Any] = {}
    tables: list[Mapping[str, Any]] = []
    labelled = ""
    for selection in selections:
        for dataset in selection.datasets:
            found = conversions_of(dataset.manifest, dataset.name).metadata
            tables.append({_ARROW_SCHEMA: found.get(_ARROW_SCHEMA)})
            if "labels" in found:
                if found["labels"] != metadata.get("labels", found["labels"]):
                    raise DatasetError(
                        f"{dataset.manifest.path} has other labels than {labelled}, so the same number means another "
                        "class. Make both data sets with the same labels first"
                    )
                labelled = dataset.manifest.path
            metadata.update(found)
    if any(each != tables[0] for each in tables):
        from asyncrec.integrations.arrow._column_types import common_types

        try:
            metadata.update(common_types(", ".join(each.path for each in selections), tables))
        except SchemaError as error:
            error.with_remedy("write one of the data sets again with the unit of the other")
            raise
    return {**metadata, **made}
