"""`open_file` and `directory_check`, for paths in any store, and `make_valid_tf_name`.

The names and their meanings are the same as in tensorboardX (``tensorboardX.record_writer``, ``tensorboardX.summary``).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ObjectNotFoundError, StoragePermissionError
from asyncrec.storage._base import Buffer
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._foreign import call
from asyncrec.storage._local.storage import LocalStorage, mapped_errors
from asyncrec.storage._registry import foreign_factory, located
from asyncrec.storage._url import join

# Data above this size is copied in a thread.
_MOST_ON_LOOP = 1 << 20


async def directory_check(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Make sure that objects can be written below ``path``, a folder or a prefix.

    A local folder is created, with its parents. For an object store, a HEAD request for a nonexistent object shows that
    the store can be reached, even if the response denies access: S3 reports a missing object only to callers that may
    list objects, and writing does not need that permission. A factory of `register_writer_factory` performs its own
    check.

    Raises:
        StorageError: the store cannot be reached, or the folder cannot be created.
    """
    factory = foreign_factory(path)
    if factory is not None:
        await call(factory.directory_check, os.fspath(path))
        return
    async with located(path, storage_options=storage_options) as (storage, key):
        if isinstance(storage, LocalStorage):
            folder = os.path.join(storage.folder, key)
            with mapped_errors("creating the folder", join(storage.root, key)):
                await storage.disk.in_thread(storage.disk.make_folder, folder)
            return
        try:
            await storage.head(join(key.rstrip("/"), f".asyncrec-{secrets.token_hex(8)}"))
        except (ObjectNotFoundError, StoragePermissionError):
            return


class FileWriter:
    """An object that is being written, yielded by `open_file` and used by one task."""

    def __init__(self, chunks: ChunkWriter) -> None:
        self._chunks = chunks

    async def write(self, data: Buffer) -> None:
        """Write ``data``. The caller may change the buffer afterwards.

        Raises:
            TypeError: ``data`` is not a buffer of bytes.
            StorageError: this or an earlier write failed.
            ClosedResourceError: the context has exited.
        """
        if not isinstance(data, bytes):
            view = memoryview(data)
            data = await in_thread(bytes, view) if view.nbytes > _MOST_ON_LOOP else bytes(view)
        await self._chunks.write([data])

    async def flush(self) -> int:
        """Make the written data as durable as the store allows; return the number of durable bytes from the start."""
        return await self._chunks.flush()


@asynccontextmanager
async def open_file(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> AsyncIterator[FileWriter]:
    """Write bytes of any format to ``path``. The complete object appears only if the context exits cleanly.

    Raises: as `open_storage`, and `StorageError`.
    """
    async with located(path, storage_options=storage_options) as (storage, key):
        async with storage.open_sink(key) as sink:
            chunks = ChunkWriter(sink)
            try:
                yield FileWriter(chunks)
            except BaseException:
                chunks.close()
                raise
            await chunks.finish()


def make_valid_tf_name(name: str) -> str:
    """Convert ``name`` into a valid name of a TensorFlow node: ``"_x y"`` becomes ``"._x_y"``, ``""`` becomes ``"."``.

    As in tensorboardX, a dot is prepended unless the name begins with a letter, a digit or a dot, and each run of
    characters other than letters, digits and ``_.-/`` becomes ``_``, or is removed at the end.
    """
    if not re.match(r"[A-Za-z0-9.]", name):
        name = "." + name
    return "_".join(re.findall(r"[A-Za-z0-9_.\-/]+", name))
