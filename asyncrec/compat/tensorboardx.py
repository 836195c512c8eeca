"""tensorboardX's record writer: ``from asyncrec.compat.tensorboardx import RecordWriter``.

The names and their behaviour are the same as in ``tensorboardX.record_writer``. `install` replaces the functions of an
installed tensorboardX, so that its ``SummaryWriter`` writes through this module.

Local files grow in place, with all flushed records visible, so that TensorBoard can follow them. They are written
without an event loop, because tensorboardX closes its writers in exit handlers, when no loop can run any more. As in
tensorboardX, an existing file is emptied, unless another writer has it open. In that case, both writers append complete
records.

All other paths go through `asyncrec.blocking`. An S3 or GCS object is uploaded in parts while it is written, sending
each byte once, and is published by a flush or by `close`. For uploads after a flush, see
`asyncrec.compat._remote_file`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Protocol

from asyncrec import blocking
from asyncrec._framing.frames import encode_frames
from asyncrec._records.record_size import buffer_size
from asyncrec.compat._left_open import keep
from asyncrec.compat._live_file import LiveFile
from asyncrec.compat._remote_file import RemoteFile
from asyncrec.errors import ArgumentValueError, UnknownSchemeError
from asyncrec.storage import _registry as registry
from asyncrec.storage._base import Buffer
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._files import make_valid_tf_name
from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._registry import foreign_factory, is_local
from asyncrec.storage._url import local_path

__all__ = [
    "REGISTERED_FACTORIES",
    "GCSRecordWriter",
    "GCSRecordWriterFactory",
    "RecordWriter",
    "S3RecordWriter",
    "S3RecordWriterFactory",
    "directory_check",
    "install",
    "make_valid_tf_name",
    "open_file",
    "register_writer_factory",
]

Path = str | os.PathLike[str]


class File(Protocol):
    """A file returned by `open_file` or by a registered factory's ``open``."""

    def write(self, data: bytes, /) -> Any: ...
    def flush(self) -> Any: ...
    def close(self) -> Any: ...


class _NoSchemeError(UnknownSchemeError, FileNotFoundError):
    """The path has no backend. tensorboardX looks for a local folder of that name and raises FileNotFoundError."""


class RecordWriter:
    """A writer of records to ``path``: a local path, ``s3://bucket/key``, ``gs://bucket/key``, or any backend's URL.

    It is also a context manager. After an exception, the unflushed bytes of an object in a store are not published, but
    the bytes of a local file stay. As in tensorboardX, threads that share a writer need their own lock.

    Raises:
        StorageError: the disk or the store failed, or ``open_writer(mode="a")`` has the local file open.
        UnknownSchemeError: the path has no backend. This is also a FileNotFoundError.
        Exception: the errors of a registered factory or its file, unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        local = is_local(path)
        self._writer: File = LiveFile(local_path(os.fspath(path))) if local else open_file(path)

    def write(self, data: Buffer) -> None:
        """Write one record, which readers see after `flush` or `close`. Raise TypeError if ``data`` is not bytes."""
        if type(data) is not bytes:
            buffer_size(data)  # raises an error for an integer, which `bytes` would accept
            data = bytes(data)
        self._writer.write(b"".join(encode_frames([data])))

    def flush(self) -> None:
        """Make all written records visible: sync a local file to disk (fsync), or publish an object in a store."""
        self._writer.flush()
        fileno = getattr(self._writer, "fileno", None)  # a registered factory may return a Python file
        if fileno is not None:
            with suppress(io.UnsupportedOperation):
                os.fsync(fileno())

    def close(self) -> None:
        """Write the buffered records, and publish the file if it is an object in a store. Idempotent."""
        self._writer.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        abort = getattr(self._writer, "abort", None) or getattr(self._writer, "discard", None)
        if exc is not None and abort is not None:
            abort()
        else:
            self.close()


def open_file(path: Path) -> File:
    """Open a file for arbitrary bytes through the path's registered factory, on the local disk, or through a backend.

    A local file is an ordinary file object. It is emptied, and its folder is created if necessary. A factory's errors
    are raised unchanged.
    """
    factory = foreign_factory(path)
    if factory is not None and not inspect.iscoroutinefunction(factory.open):
        file: File = factory.open(os.fspath(path))
        return file
    if is_local(path):
        local = local_path(os.fspath(path))
        with mapped_errors("opening", local):
            os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
            return open(local, "wb")
    try:
        return RemoteFile(path)
    except UnknownSchemeError as error:
        raise _NoSchemeError(*error.args) from error.__cause__  # the cause, if any, is a plugin's failure to load


def directory_check(path: Path) -> Any:
    """Create a local folder, or check that a store can be reached.

    If a factory is registered for the path, call its own check instead and return the result.
    """
    factory = foreign_factory(path)
    if factory is not None and not inspect.iscoroutinefunction(factory.directory_check):
        return factory.directory_check(os.fspath(path))
    if is_local(path):
        local = local_path(os.fspath(path))
        if not os.path.exists(local):  # if the path is a file, opening a file below it raises an error
            with mapped_errors("creating the folder", local):
                os.makedirs(local, exist_ok=True)
        return None
    return blocking.directory_check(path)


def install() -> AbstractContextManager[object]:
    """Make all of an installed tensorboardX, such as its ``SummaryWriter``, write through this module.

        asyncrec.compat.tensorboardx.install()
        writer = SummaryWriter("s3://bucket/logs")

    This lasts until the process ends or, if used as ``with install(): ...``, until the block ends. Factories that were
    registered with tensorboardX are also registered here. If another module has already imported a name such as
    ``RecordWriter`` from tensorboardX, that module keeps tensorboardX's object.

    If a ``SummaryWriter`` on a store is still open when the main thread ends, even with an exception, it is closed and
    loses no events. Requests to a store that does not respond are retried for two minutes.
    """
    theirs = importlib.import_module("tensorboardX")
    record_writer = importlib.import_module("tensorboardX.record_writer")
    event_file_writer = importlib.import_module("tensorboardX.event_file_writer")
    for prefix, factory in record_writer.REGISTERED_FACTORIES.items():
        if type(factory).__module__ != record_writer.__name__ and foreign_factory(f"{prefix}:") is None:
            register_writer_factory(prefix, factory)
    undo = ExitStack()
    for module in (record_writer, event_file_writer, theirs):
        for name in ("RecordWriter", "directory_check", "open_file", "register_writer_factory"):
            if hasattr(module, name):
                undo.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, globals()[name])
    kind = event_file_writer.EventFileWriter
    undo.callback(setattr, kind, "__init__", kind.__init__)
    kind.__init__ = _kept_to_the_end(kind.__init__)
    return undo


def _kept_to_the_end(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``__init__`` so that, when Python exits, queued events are written before objects in stores are closed.

    tensorboardX's own exit handler also empties the queue, but runs only after the event loop has ended.
    """

    @functools.wraps(init)
    def init_and_keep(self: Any, logdir: Any, *args: Any, **options: Any) -> None:
        init(self, logdir, *args, **options)
        if not is_local(logdir) and foreign_factory(logdir) is None:
            keep(self)

    return init_and_keep


class S3RecordWriter(RemoteFile):
    """An S3 object of arbitrary bytes, named by an ``s3://`` URL."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.path = os.fspath(path)
        self.closed = False

    def bucket_and_path(self) -> tuple[str, str]:
        """Return the bucket and the path in the URL."""
        bucket, _, path = self.path.partition("://")[2].partition("/")
        return bucket, path

    def close(self) -> None:
        super().close()
        self.closed = True


class GCSRecordWriter(S3RecordWriter):
    """A GCS object of arbitrary bytes, named by a ``gs://`` URL."""


class S3RecordWriterFactory:
    """tensorboardX's factory for ``s3://``. Registering it restores asyncrec's own backend."""

    def open(self, path: str) -> S3RecordWriter:
        return S3RecordWriter(path)

    def directory_check(self, path: str) -> None:
        """Do nothing, because a store has no folders."""


class GCSRecordWriterFactory(S3RecordWriterFactory):
    """tensorboardX's factory for ``gs://``. Registering it restores asyncrec's own backend."""

    def open(self, path: str) -> GCSRecordWriter:
        return GCSRecordWriter(path)


def register_writer_factory(prefix: str, factory: Any) -> None:
    """Register a factory for the paths ``prefix:...``.

    A factory is any object with the methods ``open(path)`` and, if needed, ``directory_check(path)``.

    `asyncrec.storage.register_writer_factory` also accepts a `StorageFactory` and checks its argument. Like
    tensorboardX's, this function does not check it, so a missing method raises an error only when it is called.

    Raises:
        ValueError: the prefix contains a colon.
    """
    if ":" in prefix:
        raise ArgumentValueError(f"the prefix {prefix!r} contains ':'; pass only the part before the colon")
    if isinstance(factory, S3RecordWriterFactory):
        registry.registered.pop(prefix, None)  # the backend opens these paths without a factory
    else:
        registry.registered[prefix] = factory


class _Registered(MutableMapping[str, Any]):
    """tensorboardX's dict of factories, which contains the two built-in ones and the registered ones."""

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
