"""`get_listed` reads an object that a listing named, and determines whether it has been deleted since.

The naive approach is to treat "not found" as a deletion by another process. But suppose that a proxy answers the
request for one entry with its own 404 page while `recover` reads a dead writer's flush log. The new shards would lack
the records of that entry, and the log would then be deleted. So the object counts as deleted only if the store no
longer lists it either.
"""

from __future__ import annotations

import anyio

from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

# A store whose listings lag behind may list a deleted object for a while.
_ATTEMPTS = 10
_BETWEEN_ATTEMPTS = 0.2


async def get_listed(folder: Storage, key: str, *, max_bytes: int) -> bytes | None:
    """Return the content of an object that was listed, or `None` if it is no longer listed.

    Raises:
        StorageError: the store lists the object but cannot find it.
        ValueError: the object is longer than ``max_bytes``.
    """
    missing: ObjectNotFoundError | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            await anyio.sleep(_BETWEEN_ATTEMPTS * attempt)
        try:
            return await folder.get(key, max_bytes=max_bytes)
        except ObjectNotFoundError as error:
            missing = error
        if key not in [info.key async for info in folder.list_objects(key)]:
            return None
    raise StorageError(
        f"{join(folder.root, key)}: the store lists this object but does not find it, so it is unknown whether the "
        "object was deleted; try again, and if this persists, check the store and any proxy in front of it"
    ) from missing
