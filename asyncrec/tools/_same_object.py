"""Detect whether two keys name the same object, so that a tool does not overwrite its source or read its own output."""

from __future__ import annotations

import os
from pathlib import Path

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ObjectNotFoundError, StoragePermissionError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._url import join


async def is_same_object(store: Storage, key: str, other: Storage, other_key: str) -> bool:
    """Return whether two keys, in one or two storages, refer to the same object.

    A file has many paths: relative and absolute ones, URLs, and links. Therefore, local files are compared by device
    and inode. Objects in other storages are the same if their versions (etag, size, checksum and time) are equal.

    Raises:
        ObjectNotFoundError: the first object does not exist.
    """
    folder, other_folder = local_folder(store), local_folder(other)
    if folder is not None and other_folder is not None:
        return await in_thread(_is_same_file, folder.path_of(key), other_folder.path_of(other_key))
    here = await store.head(key)
    try:
        there = await other.head(other_key)
    except (ObjectNotFoundError, StoragePermissionError):
        return False
    one, two = ((info.etag, info.size, info.crc32c, info.modified) for info in (here, there))
    return one == two


async def path_inside(store: Storage, key: str, other: Storage, other_key: str) -> str:
    """Return the path of the key ``other_key`` relative to the folder ``key``, or ``""`` if it is not inside."""
    here, there = join(store.root, key), join(other.root, other_key)
    folder, other_folder = local_folder(store), local_folder(other)
    if folder is not None and other_folder is not None:
        paths = (os.path.join(folder.folder, key), os.path.join(other_folder.folder, other_key))
        here, there = [(await in_thread(os.path.realpath, path)).replace(os.sep, "/") for path in paths]
    beginning = here.rstrip("/") + "/"
    return there[len(beginning) :].strip("/") if there.startswith(beginning) else ""


def _is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file. Blocks."""
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist or cannot be read, and the caller will notice that
        return False
