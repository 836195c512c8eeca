"""TensorFlow's record writer and its Examples, without TensorFlow: ``from asyncrec.compat import tensorflow as tf``.

What is here: ``tf.io`` (also as ``tf.python_io``, ``tf.compat.v1.io`` and ``tf.compat.v1.python_io``) with
``TFRecordWriter``, ``TFRecordOptions``, ``TFRecordCompressionType`` and ``tf_record_iterator``; ``tf.train`` with
``Example``, ``SequenceExample``, ``Feature`` and their parts; and the five feature helpers of its tutorials. Each is
also a name of this module. The messages are under a package name of their own, so that both live in one process.

A file appears when its writer is closed, complete, and what was there stays until then. Left on an exception, or never
closed, it does not appear.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Literal

from asyncrec import blocking
from asyncrec.example.features import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
    bytes_feature,
    bytes_list_feature,
    float_list_feature,
    int64_feature,
    int64_list_feature,
)
from asyncrec.framing.compression import CompressionOptions, parse_compression
from asyncrec.storage.base import Buffer
from asyncrec.storage.url import redact

__all__ = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "bytes_feature",
    "bytes_list_feature",
    "compat",
    "float_list_feature",
    "int64_feature",
    "int64_list_feature",
    "io",
    "python_io",
    "tf_record_iterator",
    "train",
]


class TFRecordCompressionType:
    """TensorFlow's numbers."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """How a file is compressed.

    ``compression_type`` is ``""`` or `None`, ``"GZIP"``, ``"ZLIB"``, a number of `TFRecordCompressionType`, or another
    ``TFRecordOptions``. ``compression_level``, ``window_bits``, ``mem_level`` and ``compression_strategy`` are zlib's.
    ``flush_mode`` and the sizes of buffers are taken and not used: a flush is always a sync flush, and the store says
    how many bytes it takes at once. They change no byte that a reader gets.

    Raises:
        ValueError, TypeError: on opening a file with it, for what is no compression or out of range.
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
        self.compression_type = self.get_compression_type_string(compression_type)
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
        """``""``, ``"GZIP"`` or ``"ZLIB"``, for whatever may say so; TensorFlow's own options too."""
        return parse_compression(getattr(options, "compression_type", options)).type


class TFRecordWriter:
    """Writes records to a file, or to an object of any installed backend; also a context manager.

    Args:
        path: local, or a URL.
        options: `TFRecordOptions`, TensorFlow's own, or only the compression.
        mode: ``"w"`` replaces what is there, by the complete new file. ``"x"`` refuses when there is something;
            ``"a"`` continues a local file, as its records come.

    Raises:
        ObjectExistsError: with ``mode="x"``.
        StorageError: on opening, or whenever the store failed.
    """

    def __init__(
        self, path: str | os.PathLike[str], options: Any = None, *, mode: Literal["w", "x", "a"] = "w"
    ) -> None:
        self._opened = False
        self._path = redact(os.fspath(path))
        self._context = blocking.open_writer(path, compression=_compression(options), mode=mode)
        self._writer = self._context.__enter__()
        self._opened = True

    def write(self, record: Buffer | str) -> None:
        """Write one record; a str as UTF-8.

        Raises:
            ClosedResourceError: the writer is closed.
        """
        self._writer.write(record.encode() if isinstance(record, str) else record)

    def flush(self) -> None:
        """Hand everything to the store; on a local disk it is then on disk, under a hidden name until `close`."""
        self._writer.flush()

    def close(self) -> None:
        """Complete the file, which appears now. Called again, it does nothing."""
        self._leave(None)

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(exc)

    def _leave(self, error: BaseException | None) -> None:
        if self._opened:
            self._opened = False
            self._context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    def __del__(self, warn: Any = warnings.warn) -> None:
        if getattr(self, "_opened", False):
            self._context.abandon()
            warn(
                f"{self._path}: the writer was never closed, so that nothing was written; close it, or use `with`",
                RuntimeWarning,  # a ResourceWarning would not be shown: with TensorFlow the file was there
                stacklevel=2,
            )


def tf_record_iterator(
    path: str | os.PathLike[str], options: Any = None, *, on_corrupt: Literal["raise", "skip", "stop"] = "raise"
) -> Iterator[bytes]:
    """The records of a file, one after the other.

    ``options`` say how it is compressed; `None` finds it out, where TensorFlow took it to be uncompressed.
    ``on_corrupt="skip"`` goes on behind damage; see `asyncrec.open_reader`.

    Raises:
        CorruptRecordError, TruncatedError: naming path, offset and record, after every record before it.
        ObjectNotFoundError: there is no such file.
    """
    compression = "auto" if options is None else TFRecordOptions.get_compression_type_string(options)
    with blocking.open_reader(path, compression=compression, on_corrupt=on_corrupt) as reader:
        for records in reader.batches():
            yield from records


def _compression(options: Any) -> CompressionOptions | str:
    kind = TFRecordOptions.get_compression_type_string(options)
    names = ("window_bits", "compression_level", "compression_method", "mem_level", "compression_strategy")
    if not kind or not any(getattr(options, name, None) is not None for name in names):
        return kind  # what shapes a compression means nothing without one; TensorFlow does not mind it either
    given = {name: getattr(options, name, None) for name in names}
    return parse_compression(SimpleNamespace(compression_type=kind, **given))


io = SimpleNamespace(
    TFRecordCompressionType=TFRecordCompressionType,
    TFRecordOptions=TFRecordOptions,
    TFRecordWriter=TFRecordWriter,
    tf_record_iterator=tf_record_iterator,
)
python_io = io
train = SimpleNamespace(
    BytesList=BytesList,
    Example=Example,
    Feature=Feature,
    FeatureList=FeatureList,
    FeatureLists=FeatureLists,
    Features=Features,
    FloatList=FloatList,
    Int64List=Int64List,
    SequenceExample=SequenceExample,
)
compat = SimpleNamespace(v1=SimpleNamespace(io=io, python_io=io, train=train))
