"""Storage without async: `open_storage`, `open_file` and `directory_check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from asyncrec.blocking._owner import Handle, Opened, Owner, as_call, as_context
from asyncrec.storage import _base as base
from asyncrec.storage import _files as files
from asyncrec.storage import _registry as registry
from asyncrec.storage._base import Buffer, ObjectInfo
from asyncrec.storage._listing import LISTED, list_some


class ByteSink(Handle[base.ByteSink]):
    """A synchronous `asyncrec.storage.ByteSink`."""

    @property
    def chunk_size(self) -> int:
        return self._value.chunk_size

    @property
    def published(self) -> ObjectInfo | None:
        return self._value.published

    def send(self, buffers: Sequence[Buffer]) -> None:
        """See `asyncrec.storage.ByteSink.send`."""
        self._owner.call_inside(self._value.send, buffers)

    def flush(self, tail: Sequence[Buffer]) -> int:
        """See `asyncrec.storage.ByteSink.flush`."""
        return self._owner.call_inside(self._value.flush, tail)


class ByteSource(Handle[base.ByteSource]):
    """A synchronous `asyncrec.storage.ByteSource`."""

    @property
    def info(self) -> ObjectInfo:
        return self._value.info

    def receive(self, max_bytes: int) -> bytes:
        """See `asyncrec.storage.ByteSource.receive`."""
        return self._owner.call_inside(self._value.receive, max_bytes)


class Storage(Handle[base.Storage]):
    """`asyncrec.storage.Storage`. Any number of threads may use it.

    To pass it to other functions of `asyncrec.blocking`, use ``storage=store.storage``.
    """

    @property
    def storage(self) -> base.Storage:
        """The asynchronous storage, which runs on the loop of `asyncrec.blocking`."""
        return self._value

    @property
    def root(self) -> str:
        return self._value.root

    @property
    def flush_level(self) -> str:
        return self._value.flush_level

    @property
    def read_ahead(self) -> int:
        return self._value.read_ahead

    @property
    def lists_by_pages(self) -> bool:
        return self._value.lists_by_pages

    def open_sink(self, key: str, *, exclusive: bool = False) -> Opened[ByteSink]:
        """See `asyncrec.storage.Storage.open_sink`."""
        return Opened(
            ByteSink,
            lambda: Owner(self._value.open_sink(key, exclusive=exclusive), key, keeps=self._owner),
            "open_sink",
        )

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> Opened[ByteSource]:
        """See `asyncrec.storage.Storage.open_source`."""
        return Opened(
            ByteSource,
            lambda: Owner(self._value.open_source(key, start=start, end=end, info=info), key, keeps=self._owner),
            "open_source",
        )

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `asyncrec.storage.Storage.list_objects`. No request is open between lists of 1,000 objects."""
        while True:
            found = self._owner.call(list_some, self._value, prefix, start_after)
            yield from found
            if len(found) < LISTED:
                return
            start_after = found[-1].key

    def head(self, key: str) -> ObjectInfo:
        """See `asyncrec.storage.Storage.head`."""
        return self._owner.call(self._value.head, key)

    def delete(self, key: str) -> None:
        """See `asyncrec.storage.Storage.delete`."""
        self._owner.call(self._value.delete, key)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """See `asyncrec.storage.Storage.get`."""

        async def get() -> bytes:
            return await self._value.get(key, max_bytes=max_bytes)

        return self._owner.call(get)

    def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        """See `asyncrec.storage.Storage.put`."""

        async def put() -> ObjectInfo:
            return await self._value.put(key, data, exclusive=exclusive)

        return self._owner.call(put)


class FileWriter(Handle[files.FileWriter]):
    """An object being written, opened by `open_file`. Only one thread may use a writer."""

    def write(self, data: Buffer) -> None:
        """Write ``data``, which may be changed afterwards. Each call goes to the event loop, so write large pieces."""
        self._owner.call_inside(self._value.write, data)

    def flush(self) -> int:
        """Make the written data as durable as the store allows. Return how many bytes from the start are durable."""
        return self._owner.call_inside(self._value.flush)


open_storage = as_context(registry.open_storage, Storage)
open_file = as_context(files.open_file, FileWriter)
directory_check = as_call(files.directory_check)
