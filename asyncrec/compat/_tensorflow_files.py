"""TensorFlow's record writer, options and iterator, for ``tf.io`` of `asyncrec.compat.tensorflow`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, cast

import anyio

from asyncrec import blocking
from asyncrec._framing.compression import Compression, parse_compression
from asyncrec._framing.frames import ANY_RECORD_BYTES
from asyncrec.compat._left_open import close_dropped, forget, keep
from asyncrec.compat._tensorflow_errors import as_tensorflow, told_as_tensorflow
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Buffer
from asyncrec.storage._registry import is_local
from asyncrec.storage._url import redact

Path = str | bytes | os.PathLike[str]


class TFRecordCompressionType:
    """TensorFlow's numbers for the compression types."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """TensorFlow's options for the compression of a file.

    ``compression_type`` is ``""`` or `None`, ``"GZIP"``, ``"ZLIB"``, a number from `TFRecordCompressionType`, or
    another ``TFRecordOptions``; the attribute keeps that value. ``compression_level``, ``window_bits``, ``mem_level``
    and ``compression_strategy`` are zlib's. ``flush_mode`` and the buffer sizes are accepted but ignored, because a
    flush is always a sync flush and the store determines the buffer sizes. They do not affect the records.

    Raises:
        ValueError: the compression is unknown. Other options are checked only when a file is opened.
    """

    compression_type_map: ClassVar[dict[int, str]] = {0: "", 1: "ZLIB", 2: "GZIP"}

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """Return ``""``, ``"GZIP"`` or ``"ZLIB"`` for options of any kind, including TensorFlow's own."""
        if not options:
            return ""
        if hasattr(options, "compression_type"):
            return cls.get_compression_type_string(options.compression_type)
        names = cls.compression_type_map
        if options in names:  # 1.0 and True count as 1, as in TensorFlow
            return names[options]
        if options in names.values():
            return str(options)
        raise ArgumentValueError(
            f'{options!r} is not a valid compression; pass "", "GZIP", "ZLIB" or a TFRecordCompressionType'
        )


class TFRecordWriter:
    """A writer of records to a file or to an object of any installed backend. It is also a context manager.

    Args:
        path: a local path or a URL.
        options: `TFRecordOptions`, TensorFlow's own, or just the compression.
        mode: ``"w"`` replaces an existing file when the new one is complete or first flushed. ``"x"`` raises an error
            if the file exists. ``"a"`` appends records in place to a local file.

    Raises:
        AlreadyExistsError: the file exists, with ``mode="x"``. This is also an ObjectExistsError.
        OpError: the store failed, on opening or later. This is also a StorageError, and so an OSError.
    """

    def __init__(self, path: Path, options: Any = None, *, mode: Literal["w", "x", "a"] = "w") -> None:
        with told_as_tensorflow():
            self._writing = _Writing(os.fsdecode(path), _compression(options), mode)
        keep(self._writing)

    def write(self, record: Buffer | str) -> None:
        """Write one record. A str is encoded as UTF-8.

        Raises:
            FailedPreconditionError: the writer is closed. This is also an `anyio.ClosedResourceError`.
        """
        with told_as_tensorflow():
            self._writing.opened().write(record.encode() if isinstance(record, str) else record)

    def flush(self) -> None:
        """Make all records of a local file visible and durable, so that they survive the process.

        The records of a ZLIB file, which is a single stream, or of an object in a store become visible only when the
        writer is closed.
        """
        with told_as_tensorflow():
            self._writing.flush()

    def close(self) -> None:
        """Complete and publish the file. Idempotent."""
        with told_as_tensorflow():
            self._writing.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        with told_as_tensorflow():
            self._writing.leave(exc)

    def __del__(self) -> None:
        writing = getattr(self, "_writing", None)
        if writing is not None:
            close_dropped(writing)


class _Writing:
    """An open file, separate from the user's writer so that it stays usable after the writer is garbage-collected."""

    def __init__(self, path: str, compression: Compression, mode: Literal["w", "x", "a"]) -> None:
        self._path = path
        self._compression = compression
        # If true, the first flush publishes the file, and later records are appended to it in place.
        kind = getattr(compression, "type", compression)
        self._shows_at_flush = mode != "a" and kind != "ZLIB" and is_local(path)
        self._begin(mode)

    def opened(self) -> blocking.RecordWriter:
        if self._context is None:
            raise anyio.ClosedResourceError(f"{redact(self._path)}: the writer is closed")
        return self._writer

    def flush(self) -> None:
        writer = self.opened()
        if self._shows_at_flush:
            self._shows_at_flush = False
            self._end(None)
            self._begin("a")
        else:
            writer.flush()

    def close(self) -> None:
        self.leave(None)

    def leave(self, error: BaseException | None) -> None:
        forget(self)
        self._end(error)

    def _begin(self, mode: Literal["w", "x", "a"]) -> None:
        # TensorFlow does not limit the size of records that it writes or reads.
        context = blocking.open_writer(
            self._path, compression=self._compression, mode=mode, max_record_bytes=ANY_RECORD_BYTES
        )
        self._writer = context.__enter__()
        self._context: AbstractContextManager[blocking.RecordWriter] | None = context

    def _end(self, error: BaseException | None) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


def tf_record_iterator(
    path: Path, options: Any = None, *, on_corrupt: Literal["raise", "skip", "stop"] = "raise"
) -> Iterator[bytes]:
    """Open a file and return an iterator over its records.

    ``options`` specify the compression. `None` detects it, whereas TensorFlow assumes an uncompressed file.
    ``on_corrupt="skip"`` continues after damage; see `asyncrec.open_reader`.

    Raises:
        DataLossError: the file is damaged. Raised after all records before the damage, with path, offset and record.
            This is also a CorruptRecordError or TruncatedError.
        NotFoundError: the file does not exist. This is also an ObjectNotFoundError, and so an OSError.
    """
    compression = "auto" if options is None else TFRecordOptions.get_compression_type_string(options)
    records = _records(os.fsdecode(path), compression, on_corrupt)
    next(records)
    return records


def _records(path: str, compression: Any, on_corrupt: Literal["raise", "skip", "stop"]) -> Iterator[bytes]:
    try:
        with blocking.open_reader(
            path, compression=compression, on_corrupt=on_corrupt, max_record_bytes=ANY_RECORD_BYTES
        ) as reader:
            yield b""  # the file is open
            for records in reader.batches():
                yield from records
    except Exception as error:
        as_tensorflow(error)
        raise


def _compression(options: Any) -> Compression:
    kind = TFRecordOptions.get_compression_type_string(options)
    names = ("window_bits", "compression_level", "compression_method", "mem_level", "compression_strategy")
    given = {name: getattr(options, name, None) for name in names}
    if not kind or not any(value is not None for value in given.values()):
        # Like TensorFlow, ignore zlib's options if the file is uncompressed.
        return cast("Compression", kind)
    if given["window_bits"] == 8:
        given["window_bits"] = 9  # zlib does the same, because it does not support 8-bit windows
    return parse_compression(SimpleNamespace(compression_type=kind, **given))
