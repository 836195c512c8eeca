"""`forget_source` has a data set forget how far a source was read, so that the source begins anew."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.ownership.forgetting import forget
from asyncrec._shards.ownership.sources import check_source
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact
from asyncrec.tools._report_json import json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetSourceReport:
    """The result of `forget_source`.

    Attributes:
        position: how far the source was stored.
    """

    path: str
    source: str
    position: int

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "path source position")


async def forget_source(
    path: str | os.PathLike[str],
    source: str,
    *,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ForgetSourceReport:
    """Forget how far a source of records was stored, so that the next writer takes it from its first position.

    Call it if a topic was deleted and made anew under its old name, so that its positions begin with 0 again. The
    records that are stored stay. A writer that has the source in a store is ended for it, and goes on with its other
    sources.

    Args:
        path: the data set's folder and name.
        source: the name that writers give as ``source=``.

    Raises:
        TypeError, ValueError: this cannot be the name of a source.
        ObjectNotFoundError: there is no data set, or nothing of the source is stored in it.
        ConflictError: a writer that has the source cannot be ended from here; the message says why. Or a writer took
            the source in the same moment.
        ManifestError: the manifest cannot be read.
        StorageError: whether the source was forgotten is not known; call it again.
    """
    check_source(source)
    options = None if storage_options is None else dict(storage_options)
    async with dataset_at(path, storage=storage, storage_options=options) as (folder, name):
        position = await forget(folder, name, source, path=redact(os.fspath(path)))
    return ForgetSourceReport(path=redact(os.fspath(path)), source=source, position=position)
