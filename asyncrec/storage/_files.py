"""Files by path in any store: `open_file` and `directory_check`; and `make_valid_tf_name`.

The names and their meaning are tensorboardX's (``tensorboardX.record_writer``, ``tensorboardX.summary``).
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

# The maximum that is copied on the event loop.
_MOST_ON_LOOP = 1 << 20


async def directory_check(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Make sure that objects can be written below ``path``, a folder or a prefix.

    A local folder is created, with its parents. An object store is asked for an object that does not exist: any answer
    shows that the store can be reached. A refusal is an answer, too: S3 reports a missing object only to callers that
    may list, and writing does not need that permission. A factory of `register_writer_factory` answers itself.

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
    """An object that is being written by `open_file`. Used by one task."""

    def __init__(self, chunks: ChunkWriter) -> None:
        self._chunks = chunks

    async def write(self, data: Buffer) -> None:
        """Write ``data``, which may be changed afterwards.

        Raises:
            TypeError: ``data`` is not made of bytes.
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
    """Write any bytes to ``path``, as an object that appears whole if the context exits cleanly, or else not at all.

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

    A name begins with a letter, a digit or a dot (otherwise a dot is put before it), and everything between runs of
    letters, digits and ``_.-/`` becomes ``_``, as in tensorboardX.
    """
    if not re.match(r"[A-Za-z0-9.]", name):
        name = "." + name
    return "_".join(re.findall(r"[A-Za-z0-9_.\-/]+", name))
