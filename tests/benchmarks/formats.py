"""Code that writes each format record by record and reads it, for `formats_compared`."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE = 1024
SOURCE = random.Random(4)
POOL = [SOURCE.randbytes(SIZE) for _ in range(64)]

Put = Callable[[bytes], object]


def record(number: int) -> bytes:
    return number.to_bytes(8, "little") + POOL[number % 64][8:]


# Writers and readers; a writer returns a function that puts a record and one that closes ------------------------------


def asyncrec_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    from asyncrec import blocking

    context = blocking.open_sharded_writer(path / "set", max_shard_bytes="4GiB")
    writer = context.__enter__()
    return writer.write, lambda: context.__exit__(None, None, None)


def asyncrec_lists(path: Path) -> tuple[Put, Callable[[], object]]:
    from asyncrec import blocking

    context = blocking.open_sharded_writer(path / "set", max_shard_bytes="4GiB")
    writer = context.__enter__()
    records: list[bytes] = []

    def put(data: bytes) -> None:
        records.append(data)
        if len(records) == 1024:
            writer.write_many(records)
            records.clear()

    def close() -> None:
        writer.write_many(records)
        context.__exit__(None, None, None)

    return put, close


def asyncrec_read(path: Path, **options: Any) -> Iterator[bytes]:
    from asyncrec import blocking

    blocking.recover(path / "set")
    for shard in blocking.list_shards(path / "set"):
        with blocking.open_reader(shard, **options) as reader:
            for batch in reader.batches():
                yield from batch


def tensorflow_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    import tensorflow as tf

    writer = tf.io.TFRecordWriter(str(path / "all"))
    return writer.write, writer.close


def tensorflow_read(path: Path) -> Iterator[bytes]:
    import tensorflow as tf

    yield from tf.compat.v1.io.tf_record_iterator(str(path / "all"))


def tfrecord_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    from tfrecord.writer import TFRecordWriter

    # It writes only Examples; without its serializer, only the framing is left.
    TFRecordWriter.serialize_tf_example = staticmethod(lambda data: data)
    writer = TFRecordWriter(str(path / "all"))
    return writer.write, writer.close


def tfrecord_read(path: Path) -> Iterator[bytes]:
    from tfrecord.reader import tfrecord_iterator

    yield from map(bytes, tfrecord_iterator(str(path / "all")))


def array_record_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path / "all"), "group_size:1,uncompressed")
    return writer.write, writer.close


def array_record_read(path: Path) -> Iterator[bytes]:
    from array_record.python.array_record_module import ArrayRecordReader

    with closing(ArrayRecordReader(str(path / "all"))) as reader:
        yield from reader.read_all()


def webdataset_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    from webdataset import TarWriter

    writer = TarWriter(str(path / "all.tar"))
    return lambda data: writer.write({"__key__": data[:8].hex(), "bin": data}), writer.close


def webdataset_read(path: Path) -> Iterator[bytes]:
    from webdataset import WebDataset

    for sample in WebDataset(str(path / "all.tar"), shardshuffle=False):
        yield sample["bin"]


def warc_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    from warcio.warcwriter import WARCWriter

    file = (path / "all.warc").open("wb")
    writer = WARCWriter(file, gzip=False)

    def put(data: bytes) -> None:
        uri = f"http://127.0.0.1/{data[:8].hex()}"
        writer.write_record(writer.create_warc_record(uri, "resource", payload=io.BytesIO(data), length=len(data)))

    return put, file.close


def warc_read(path: Path, **options: Any) -> Iterator[bytes]:
    from warcio.archiveiterator import ArchiveIterator

    with (path / "all.warc").open("rb") as file:
        for each in ArchiveIterator(file, **options):
            yield each.content_stream().read()


def parquet_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("data", pa.binary())])
    writer = parquet.ParquetWriter(path / "all.parquet", schema, compression="none", use_dictionary=False)
    rows: list[bytes] = []

    def flush() -> None:
        writer.write_table(pa.table([pa.array(rows, pa.binary())], schema=schema))
        rows.clear()

    def put(data: bytes) -> None:
        rows.append(data)
        if len(rows) == 4096:  # a row group of 4 MiB
            flush()

    def close() -> None:
        flush()
        writer.close()

    return put, close


def parquet_read(path: Path) -> Iterator[bytes]:
    from pyarrow import parquet

    for batch in parquet.ParquetFile(path / "all.parquet").iter_batches():
        yield from batch.column(0).to_pylist()


def streaming_writer(path: Path) -> tuple[Put, Callable[[], object]]:
    from streaming import MDSWriter

    writer = MDSWriter(out=str(path / "set"), columns={"x": "bytes"}, size_limit=None)
    return lambda data: writer.write({"x": data}), writer.finish


def streaming_read(path: Path) -> Iterator[bytes]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    for sample in StreamingDataset(local=str(path / "set"), shuffle=False, batch_size=1):
        yield sample["x"]


@dataclass(frozen=True)
class Format:
    package: str
    module: str
    writer: Callable[[Path], tuple[Put, Callable[[], object]]]
    read: Callable[[Path], Iterable[bytes]]


FORMATS = {
    "asyncrec": Format("asyncrec", "asyncrec", asyncrec_writer, asyncrec_read),
    "asyncrec, lists of 1,024": Format("asyncrec", "asyncrec", asyncrec_lists, asyncrec_read),
    "asyncrec, skipping what is damaged": Format(
        "asyncrec", "asyncrec", asyncrec_writer, lambda path: asyncrec_read(path, on_corrupt="skip")
    ),
    "TensorFlow": Format("tensorflow-cpu", "tensorflow", tensorflow_writer, tensorflow_read),
    "tfrecord": Format("tfrecord", "tfrecord", tfrecord_writer, tfrecord_read),
    "array_record": Format("array_record", "array_record", array_record_writer, array_record_read),
    "webdataset": Format("webdataset", "webdataset", webdataset_writer, webdataset_read),
    "MosaicML Streaming": Format("mosaicml-streaming", "streaming", streaming_writer, streaming_read),
    "WARC": Format("warcio", "warcio", warc_writer, warc_read),
    "WARC, digests checked": Format(
        "warcio", "warcio", warc_writer, lambda path: warc_read(path, check_digests="raise")
    ),
    "Parquet": Format("pyarrow", "pyarrow", parquet_writer, parquet_read),
}
