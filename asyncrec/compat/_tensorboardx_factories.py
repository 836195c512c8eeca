"""tensorboardX's registry of writer factories, and its own factories by name, stand here over asyncrec's."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from typing import Any

from asyncrec.compat._remote_file import RemoteFile
from asyncrec.errors import ArgumentValueError
from asyncrec.storage import _registry as registry
from asyncrec.storage._factory import StorageFactory


class S3RecordWriter(RemoteFile):
    """An object of S3, for any bytes: what `open_file` gives for ``s3://``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.path = os.fspath(path)
        self.closed = False

    def bucket_and_path(self) -> tuple[str, str]:
        """What the URL names."""
        bucket, _, path = self.path.partition("://")[2].partition("/")
        return bucket, path

    def close(self) -> None:
        super().close()
        self.closed = True


class GCSRecordWriter(S3RecordWriter):
    """The same for ``gs://``."""


class S3RecordWriterFactory:
    """tensorboardX's, for ``s3://``; to register it is to have what is there without it."""

    def open(self, path: str) -> S3RecordWriter:
        return S3RecordWriter(path)

    def directory_check(self, path: str) -> None:
        """A store has no folders."""


class GCSRecordWriterFactory(S3RecordWriterFactory):
    """The same for ``gs://``."""

    def open(self, path: str) -> GCSRecordWriter:
        return GCSRecordWriter(path)


def register_writer_factory(prefix: str, factory: Any) -> None:
    """Route ``prefix:...`` to a factory: any object with ``open(path)``, and ``directory_check(path)`` if it is asked.

    As `asyncrec.storage.register_writer_factory`, which takes a `StorageFactory` too and looks at what it is given; as
    in tensorboardX, what it lacks is told when it is used.

    Raises:
        ValueError: the prefix contains a colon.
    """
    if ":" in prefix:
        raise ArgumentValueError(f"the prefix {prefix!r} contains ':'; give what stands before the colon")
    if isinstance(factory, S3RecordWriterFactory):
        registry.registered.pop(prefix, None)  # what it opens is opened by what is there without it
    else:
        registry.registered[prefix] = factory


class _Registered(MutableMapping[str, Any]):
    """tensorboardX's dict of factories: the two that are built in, and what was registered."""

    _built_in: dict[str, Any] = {"s3": S3RecordWriterFactory(), "gs": GCSRecordWriterFactory()}  # noqa: RUF012  # constant

    def __getitem__(self, prefix: str) -> StorageFactory | Any:
        return registry.registered[prefix] if prefix in registry.registered else self._built_in[prefix]

    def __setitem__(self, prefix: str, factory: Any) -> None:
        register_writer_factory(prefix, factory)

    def __delitem__(self, prefix: str) -> None:
        del registry.registered[prefix]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._built_in, **registry.registered})

    def __len__(self) -> int:
        return len({**self._built_in, **registry.registered})


REGISTERED_FACTORIES = _Registered()
