"""TensorFlow's record writer, its options and its iterator: ``tf.io`` of `asyncrec.compat.tensorflow`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace, TracebackType
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
    """TensorFlow's numbers."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """TensorFlow's options for the compression of a file.

    ``compression_type`` is ``""`` or `None`, ``"GZIP"``, ``"ZLIB"``, a number of `TFRecordCompressionType`, or another
    ``TFRecordOptions``, and stays what was given. ``compression_level``, ``window_bits``, ``mem_level`` and
    ``compression_strategy`` are zlib's. ``flush_mode`` and the sizes of buffers are taken and not used: a flush is
    always a sync flush, and the store says how many bytes it takes at once. They change no byte that a reader gets.

    Raises:
        ValueError: the compression is unknown; or, when a file is opened with it, an option is out of range.
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
        if options in names:  # a number that is equal to one is one, as in TensorFlow
            return names[options]
        if options in names.values():
            return str(options)
        raise ArgumentValueError(
            f'{options!r} is not a valid compression; pass "", "GZIP", "ZLIB" or a TFRecordCompressionType'
        )


class TFRecordWriter:
    """A writer of records to a file, or to an object of any installed backend; also a context manager.

    Args:
        path: local, or a URL.
        options: `TFRecordOptions`, TensorFlow's own, or only the compression.
        mode: ``"w"`` replaces what is there, by the complete new file, or by what `flush` shows of it. ``"x"`` refuses
            if the file exists; ``"a"`` continues a local file, as its records come.

    Raises:
        AlreadyExistsError: with ``mode="x"``; an ObjectExistsError too.
        OpError: on opening, or whenever the store failed; a StorageError, and so an OSError, too.
    """

    def __init__(self, path: Path, options: Any = None, *, mode: Literal["w", "x", "a"] = "w") -> None:
        with told_as_tensorflow():
            self._writing = _Writing(os.fsdecode(path), _compression(options), mode)
        keep(self._writing)

    def write(self, record: Buffer | str) -> None:
        """Write one record; a str as UTF-8.

        Raises:
            FailedPreconditionError: the writer is closed; an `anyio.ClosedResourceError` too.
        """
        with told_as_tensorflow():
            self._writing.opened().write(record.encode() if isinstance(record, str) else record)

    def flush(self) -> None:
        """Make all records of a local file visible and durable; they survive the process from then on.

        A ZLIB file, which is one stream, and an object of a store, which shows whole objects, are visible after `close`
        only.
        """
        with told_as_tensorflow():
            self._writing.flush()

    def close(self) -> None:
        """Complete the file, which then appears. Idempotent."""
        with told_as_tensorflow():
            self._writing.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with told_as_tensorflow():
            self._writing.leave(exc)

    def __del__(self) -> None:
        writing = getattr(self, "_writing", None)
        if writing is not None:
            close_dropped(writing)


class _Writing:
    """An open file, separate from the object that the user may drop."""

    def __init__(self, path: str, compression: Compression, mode: Literal["w", "x", "a"]) -> None:
        self._path = path
        self._compression = compression
        # Its first flush completes the file, and it is continued in place from there on.
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
        # TensorFlow has no limit, neither here nor in reading.
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
    """Iterate over the records of a file, which is opened now.

    ``options`` say how it is compressed; `None` detects it, while TensorFlow assumes an uncompressed file.
    ``on_corrupt="skip"`` continues after damage; see `asyncrec.open_reader`.

    Raises:
        DataLossError: the file is damaged; raised after every record before the damage, with path, offset and record; a
            CorruptRecordError or TruncatedError, too.
        NotFoundError: the file does not exist; an ObjectNotFoundError, and so an OSError, too.
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
            yield b""  # it is open
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
        # What shapes a compression means nothing without one; TensorFlow does not mind it either.
        return cast("Compression", kind)
    if given["window_bits"] == 8:
        given["window_bits"] = 9  # as zlib does, which has no window of 8 bits
    return parse_compression(SimpleNamespace(compression_type=kind, **given))
