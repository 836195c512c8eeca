"""The names that belong to a data set, and the error for a missing file if a data set has its name."""

from __future__ import annotations

from contextlib import suppress

import anyio

from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import list_some

# This folder contains a folder for each data set.
MANIFESTS = "_manifest/"


def manifest_prefix(name: str) -> str:
    """Return the folder of a data set's segments."""
    return f"{MANIFESTS}{name}/"


def first_fixed_shard(name: str) -> str:
    """Return how the name of a data set's first fixed shard begins, as TensorFlow's does."""
    return f"{name}-00000-of-"


# How long an error may wait for its explanation: time for the two requests of a store that is well, and none for the
# back-off of one that throttles.
_SECONDS = 2.0


async def not_found(error: ObjectNotFoundError, storage: Storage, key: str, *, path: str) -> ObjectNotFoundError | None:
    """Return the error for a missing file whose name is that of a data set. It names the call that reads data sets.

    `None` if no data set has it, or the store does not say.
    """
    if not await is_dataset(storage, key):
        return None
    name = key.rpartition("/")[2]
    told = ObjectNotFoundError(f"{error}; {name!r} is a data set: to read it, use open_dataset({path!r})")
    told.errno = error.errno
    return told


async def is_dataset(storage: Storage, key: str) -> bool:
    """Return whether a data set has this name, as far as the store says; for a caller that has an error to explain.

    It asks for a page of a listing, and for one more if there is no manifest; it never asks a storage that does not
    list by pages. After two seconds it returns false, whatever the store's retries would have led to. What cannot be
    cancelled is waited for: a local folder's names are read to the end, by one thread. If the listing fails, it returns
    false: the caller raises the error to explain.
    """
    folder, slash, name = key.rpartition("/")
    if not name or not storage.lists_by_pages:
        return False
    with suppress(Exception), anyio.move_on_after(_SECONDS):
        for beginning in (manifest_prefix(name), first_fixed_shard(name)):
            if await list_some(storage, folder + slash + beginning, ""):
                return True
    return False
