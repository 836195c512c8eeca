"""The names of a data set's objects, and the error for a missing file that has the name of a data set."""

from __future__ import annotations

from contextlib import suppress

import anyio

from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import list_some

# The folder that contains one folder of segments per data set.
MANIFESTS = "_manifest/"


def manifest_prefix(name: str) -> str:
    """Return the path of the folder with a data set's segments."""
    return f"{MANIFESTS}{name}/"


def first_fixed_shard(name: str) -> str:
    """Return the beginning of the name of a data set's first fixed shard. The name follows TensorFlow's pattern."""
    return f"{name}-00000-of-"


# The maximum number of seconds to spend on explaining an error: enough for two requests to a healthy store, but not for
# the back-off of a store that throttles.
_SECONDS = 2.0


async def not_found(error: ObjectNotFoundError, storage: Storage, key: str, *, path: str) -> ObjectNotFoundError | None:
    """Return an error that refers the user to open_dataset, if the missing file has the name of a data set.

    Return `None` if no data set has the name, or if the store does not respond.
    """
    if not await is_dataset(storage, key):
        return None
    name = key.rpartition("/")[2]
    told = ObjectNotFoundError(f"{error}; {name!r} is a data set: to read it, use open_dataset({path!r})")
    told.errno = error.errno
    return told


async def is_dataset(storage: Storage, key: str) -> bool:
    """Return whether a data set has this name, for a caller that has an error to explain.

    This requests one page of a listing, and a second page if there is no manifest. Return false if the storage does not
    list by pages, if the listing fails, or after two seconds, even if the store would still retry. Calls that cannot be
    cancelled are awaited; for example, a thread that lists a local folder reads all its names.
    """
    folder, slash, name = key.rpartition("/")
    if not name or not storage.lists_by_pages:
        return False
    with suppress(Exception), anyio.move_on_after(_SECONDS):
        for beginning in (manifest_prefix(name), first_fixed_shard(name)):
            if await list_some(storage, folder + slash + beginning, ""):
                return True
    return False
