"""tensorboardX's names in asyncrec run the examples from its documentation, and do not have its bugs."""

from __future__ import annotations

import gc
import inspect
import io
import os
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_gcs import FakeGcs
from s3_store import Store

from asyncrec import StorageError, blocking
from asyncrec.compat import _remote_file as remote_file
from asyncrec.compat._left_open import left_open
from asyncrec.compat.tensorboardx import (
    REGISTERED_FACTORIES,
    GCSRecordWriterFactory,
    RecordWriter,
    S3RecordWriter,
    S3RecordWriterFactory,
    directory_check,
    make_valid_tf_name,
    open_file,
    register_writer_factory,
)
from asyncrec.errors import UnknownSchemeError
from asyncrec.storage import _registry as registry
from asyncrec.storage._base import Buffer, ByteSink, ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._memory import open_memory

EVENT = b"serialized_protocol_buffer_data"
FAR = "compat-tensorboardx"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test its own current folder and its own registered prefixes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "registered", {})
    yield
    left = list(left_open.files)
    left_open.files.clear()
    assert not left


# -- examples from the documentation ----------------------------------------------------------------------------------


def test_signatures_match_documentation() -> None:
    def parameters(of: Any) -> list[str]:
        return [name for name in inspect.signature(of).parameters if name != "self"]

    assert parameters(RecordWriter) == ["path"]
    assert parameters(RecordWriter.write) == ["data"]
    assert parameters(RecordWriter.flush) == parameters(RecordWriter.close) == []
    assert parameters(make_valid_tf_name) == ["name"]
    assert parameters(register_writer_factory) == ["prefix", "factory"]
    assert parameters(directory_check) == parameters(open_file) == ["path"]


def test_documented_local_file_block_runs() -> None:
    # Create writer for local file
    writer = RecordWriter("./logs/events.out.tfevents")

    # Write binary protocol buffer data
    event_data = b"serialized_protocol_buffer_data"
    writer.write(event_data)

    # Ensure data is written to disk
    writer.flush()
    assert blocking.read_records("logs/events.out.tfevents") == [event_data]
    writer.close()
    assert blocking.read_records("logs/events.out.tfevents") == [event_data]


def test_documented_s3_block_runs_with_s3_endpoint(s3: Store) -> None:
    event_data = EVENT
    s3.client.create_bucket(Bucket="my-bucket")

    # Write to S3 bucket
    writer = RecordWriter("s3://my-bucket/tensorboard/events.out.tfevents")
    writer.write(event_data)
    writer.close()

    assert blocking.read_records("s3://my-bucket/tensorboard/events.out.tfevents") == [EVENT]


def test_documented_gcs_block_runs(gcs: FakeGcs) -> None:
    event_data = EVENT

    # Write to GCS bucket
    writer = RecordWriter("gs://my-bucket/tensorboard/events.out.tfevents")
    writer.write(event_data)
    writer.close()

    assert blocking.read_records("gs://my-bucket/tensorboard/events.out.tfevents") == [EVENT]


def test_documented_context_manager_and_writer_context_run() -> None:
    event_data = EVENT

    # Automatic resource cleanup
    class RecordWriterContext:
        def __init__(self, path: str) -> None:
            self.writer = RecordWriter(path)

        def __enter__(self) -> RecordWriter:
            return self.writer

        def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
            self.writer.close()

    # Usage
    with RecordWriterContext("./logs/events.out.tfevents") as writer:
        writer.write(event_data)
    # Automatically closed on exit

    with RecordWriter("./logs/others") as writer:
        writer.write(event_data)
    assert blocking.read_records("logs/events.out.tfevents") == blocking.read_records("logs/others") == [EVENT]


def test_prefix_with_colon_raises_value_error() -> None:
    with pytest.raises(ValueError, match="':'"):
        register_writer_factory("s3:", _Factory())


@pytest.mark.parametrize(("name", "valid"), [("", "."), ("_x", "._x"), ("$ave/&sound", "._ave/_sound"), ("a b", "a_b")])
def test_tf_names_are_sanitized_like_tensorboardx(name: str, valid: str) -> None:
    assert make_valid_tf_name(name) == valid


# -- the end of Python ------------------------------------------------------------------------------------------------


def test_unclosed_and_late_closed_writers_lose_no_records() -> None:
    """`atexit` closes tensorboardX's SummaryWriter after the event loop of `asyncrec.blocking` has stopped."""
    program = """
import atexit
from asyncrec import blocking
from asyncrec.compat.tensorboardx import RecordWriter

never, late = RecordWriter("never"), RecordWriter("late")
def last():
    late.write(b"last")
    late.flush()
    late.close()
atexit.register(last)
for writer in (never, late):
    writer.write(b"first")
blocking.write_records("other", [b"starts the event loop"])
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert blocking.read_records("never") == [b"first"]
    assert blocking.read_records("late") == [b"first", b"last"]


# -- stores -----------------------------------------------------------------------------------------------------------


class _Counting(ByteSink):
    """A sink with a minimum part size of 64 KiB that counts the bytes sent to it."""

    chunk_size = 64 << 10

    def __init__(self, sink: ByteSink, sent: list[int]) -> None:
        self._sink = sink
        self._sent = sent

    async def send(self, buffers: Sequence[Buffer]) -> None:
        self._sent.append(sum(memoryview(buffer).nbytes for buffer in buffers))
        await self._sink.send(buffers)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        return 0

    @property
    def published(self) -> ObjectInfo | None:  # type: ignore[override]  # an attribute there, told by another here
        return self._sink.published


@pytest.fixture
def sent() -> list[int]:
    """Return the list of the number of bytes of each request to ``far://``, a store that is empty at first."""
    with blocking.open_storage(f"memory://{FAR}") as store:
        for info in store.list_objects():
            store.delete(info.key)
    counts: list[int] = []

    @asynccontextmanager
    async def open_far(url: str, **options: Any) -> AsyncIterator[Storage]:
        async with open_memory(f"memory://{FAR}", chunk_size=_Counting.chunk_size) as storage:
            inner = storage.open_sink

            @asynccontextmanager
            async def open_sink(key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
                async with inner(key, exclusive=exclusive) as sink:
                    yield _Counting(sink, counts)

            storage.open_sink = open_sink  # type: ignore[method-assign]  # to see what is sent
            yield storage

    register_writer_factory("far", StorageFactory("far", ("far",), open_far))
    return counts


def test_writer_uploads_each_byte_once_without_flushes(sent: list[int]) -> None:
    with RecordWriter("far://bucket/events") as writer:
        for _ in range(2000):
            writer.write(bytes(1000))
    assert sum(sent) == 2000 * 1016
    assert blocking.read_records(f"memory://{FAR}/events") == [bytes(1000)] * 2000


def test_flushed_events_are_readable_in_one_object(sent: list[int]) -> None:
    """As with tensorboardX, TensorBoard can read the event file of a run that is still going or was killed."""
    with RecordWriter("far://bucket/events") as writer:
        for number in range(20):
            writer.write(b"%d" % number)
            writer.flush()
            assert blocking.read_records(f"memory://{FAR}/events") == [b"%d" % each for each in range(number + 1)]
            before = list(sent)
            writer.flush()
            assert sent == before  # there is nothing new to flush
        writer.write(b"last")
    assert blocking.read_records(f"memory://{FAR}/events")[-1] == b"last"
    assert objects() == ["events"]


def objects() -> list[str]:
    with blocking.open_storage(f"memory://{FAR}") as store:
        return [info.key for info in store.list_objects()]


@pytest.mark.slow
def test_flushes_upload_bounded_multiple_of_written_bytes(sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """tensorboardX kept the entire object in memory and uploaded it at each flush: 2 MB became 500 MB or more."""
    monkeypatch.setattr(remote_file, "_BURST", 1 << 20)
    monkeypatch.setattr(remote_file, "_EACH_SECOND", 0)
    expected = [b"%04d" % number + bytes(996) for number in range(1000)]
    with RecordWriter("far://bucket/events") as writer, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for record in expected:
            writer.write(record)
            writer.flush()
    (one,) = warned
    assert str(one.message).startswith("far://bucket/events: the file continues in far://bucket/events.000001,")
    assert sum(sent) < (1 + 8) * 1000 * 1016 + (1 << 20)
    keys = objects()
    assert 2 <= len(keys) <= 60
    assert keys == sorted(keys)
    found = [record for key in keys for record in blocking.read_records(f"memory://{FAR}/{key}")]
    assert found == expected


def test_large_object_is_not_uploaded_again(sent: list[int]) -> None:
    with RecordWriter("far://bucket/events") as writer:
        writer.write(bytes(9 << 20))
        writer.flush()
        writer.write(b"2")
        with pytest.warns(RuntimeWarning, match="the file continues in"):
            writer.flush()
        writer.write(b"3")
    assert sum(sent) == (9 << 20) + 16 + 17 + 34
    assert blocking.read_records(f"memory://{FAR}/events.000001") == [b"2", b"3"]


def test_memory_does_not_grow_with_object_size(sent: list[int]) -> None:
    with RecordWriter("far://bucket/events") as writer:
        for _ in range(2000):
            writer.write(bytes(1000))
        assert sum(sent) > 2000 * 1000 - (1 << 20)


def test_closed_writer_is_not_uploaded_again(sent: list[int]) -> None:
    """tensorboardX's ``__del__`` uploaded the object once more."""
    writer = RecordWriter("far://bucket/events")
    writer.write(b"1")
    writer.close()
    before = list(sent)
    writer.close()
    del writer
    gc.collect()
    assert sent == before


def test_object_appears_only_after_flush_or_close(sent: list[int]) -> None:
    for flushed in (False, True):
        with pytest.raises(KeyError):
            with RecordWriter("far://bucket/events") as writer:
                writer.write(b"1")
                if flushed:
                    writer.flush()
                writer.write(b"2")
                assert objects() == ["events"] * flushed
                raise KeyError
        assert objects() == ["events"] * flushed
    assert blocking.read_records(f"memory://{FAR}/events") == [b"1"]


def test_failed_write_raises_again_on_close(s3: Store) -> None:
    writer = RecordWriter("s3://no-such-bucket/events")
    with pytest.raises(StorageError, match="no-such-bucket"):
        for _ in range(20):
            writer.write(bytes(1 << 20))
        writer.close()
    with pytest.raises(StorageError, match="an earlier write failed"):
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise KeyError"])
def test_unclosed_object_is_published_at_exit(s3: Store, end: str) -> None:
    """As in tensorboardX's ``__del__``: a script that never closes its SummaryWriter keeps its events."""
    program = f"""
from asyncrec.compat.tensorboardx import RecordWriter
writer = RecordWriter("s3://{s3.bucket}/left-open")
writer.write(b"first")
{end}
"""
    subprocess.run([sys.executable, "-c", program], check=not end, env=dict(os.environ))
    assert blocking.read_records(f"s3://{s3.bucket}/left-open") == [b"first"]


# A stand-in for tensorboardX: a daemon thread writes a queue of events, which the exit handler empties.
SUMMARIES = """
import atexit, queue, threading, time
from tensorboardX import record_writer

class EventFileWriter:
    def __init__(self, logdir):
        self.queue = queue.Queue()
        self.writer = record_writer.RecordWriter(logdir)
        self.worker = threading.Thread(target=self.run, daemon=True)
        self.worker.start()
        atexit.register(self.close)

    def run(self):
        while (event := self.queue.get()) is not None:
            time.sleep(0.01)  # as a store takes, when it is flushed
            self.writer.write(event)

    def close(self):
        if self.worker is not None:
            self.queue.put(None)
            self.worker.join()
            self.worker = None
            self.writer.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "raise KeyError"])
def test_event_queue_is_drained_before_open_objects_close(s3: Store, end: str) -> None:
    package = Path("tensorboardX")
    package.mkdir()
    (package / "__init__.py").write_text("from tensorboardX.record_writer import RecordWriter")
    (package / "record_writer.py").write_text("RecordWriter, REGISTERED_FACTORIES = None, {}")
    (package / "event_file_writer.py").write_text(SUMMARIES)
    program = f"""
from asyncrec.compat.tensorboardx import install
from tensorboardX.event_file_writer import EventFileWriter
install()
writer = EventFileWriter("s3://{s3.bucket}/queue")
for number in range(20):
    writer.queue.put(b"%d" % number)
{end}
"""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True)
    assert done.stderr.strip().split("\n")[-1] == ("KeyError" if end else "")
    assert blocking.read_records(f"s3://{s3.bucket}/queue") == [b"%d" % number for number in range(20)]


def test_flushed_records_in_store_survive_kill(s3: Store) -> None:
    program = f"""
import os
from asyncrec.compat.tensorboardx import RecordWriter
writer = RecordWriter("s3://{s3.bucket}/killed")
for number in range(3):
    writer.write(b"%d" % number)
    writer.flush()
writer.write(b"not flushed")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program], env=dict(os.environ))
    assert blocking.read_records(f"s3://{s3.bucket}/killed") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("opens", [RecordWriter, open_file], ids=["records", "bytes"])
def test_dropped_object_is_published(opens: Any, sent: list[int]) -> None:
    file = opens("far://bucket/events")
    file.write(b"1")
    del file
    gc.collect()
    assert objects() == ["events"]


@pytest.mark.anyio
async def test_dropped_writer_does_not_block_event_loop(sent: list[int]) -> None:
    file = open_file("far://bucket/events")
    file.write(b"1")
    threads = set(threading.enumerate())
    del file
    gc.collect()
    (closing,) = set(threading.enumerate()) - threads or {None}
    if closing is not None:
        await anyio.to_thread.run_sync(closing.join)
    assert objects() == ["events"]


# -- routing ----------------------------------------------------------------------------------------------------------


class _Factory:
    """A factory as tensorboardX expects it: an object with two methods, which returns a file with three."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.checked: list[str] = []
        self.data = b""
        self.flushes = 0
        self.closed = False

    def open(self, path: str) -> _Factory:
        self.opened.append(path)
        return self

    def directory_check(self, path: str) -> None:
        self.checked.append(path)

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self.closed = True


def test_registered_factory_gets_path_and_bytes() -> None:
    register_writer_factory("mine", factory := _Factory())
    directory_check("mine:logs")
    writer = RecordWriter("mine:logs/events")
    writer.write(EVENT)
    writer.flush()
    writer.close()
    assert (factory.checked, factory.opened) == (["mine:logs"], ["mine:logs/events"])
    assert (factory.flushes, factory.closed) == (1, True)
    Path("copy").write_bytes(factory.data)
    assert blocking.read_records("copy") == [EVENT]


def test_factory_file_is_synced_for_python_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for file in (open("mine", "wb"), io.BytesIO()):  # noqa: SIM115  # the writer closes it
        factory = _Factory()
        monkeypatch.setattr(factory, "open", lambda path, file=file: file)
        register_writer_factory("mine", factory)
        with RecordWriter("mine:x") as writer:
            writer.write(EVENT)
            writer.flush()
    assert len(synced) == 1
    assert blocking.read_records("./mine") == [EVENT]


@pytest.mark.parametrize("record", ["text", 5, None])
def test_non_bytes_record_is_rejected(record: Any) -> None:
    with RecordWriter("x") as writer:
        with pytest.raises(TypeError):
            writer.write(record)
    assert blocking.read_records("x") == []


def test_factory_lacking_method_fails_only_on_use() -> None:
    """tensorboardX does not check factories, so scripts implement only the methods that they need."""

    class OnlyOpen:
        def open(self, path: str) -> io.BytesIO:
            return io.BytesIO()

    register_writer_factory("mine", OnlyOpen())
    register_writer_factory("", OnlyOpen())
    register_writer_factory("nothing", object())
    for path in ("mine:x", ":x"):
        with RecordWriter(path) as writer:
            writer.write(EVENT)
    with pytest.raises(AttributeError, match="directory_check"):
        directory_check("mine:x")
    with pytest.raises(AttributeError, match="open"):
        RecordWriter("nothing:x")


def test_directory_check_returns_factory_result() -> None:
    class Answers(_Factory):
        def directory_check(self, path: str) -> Any:
            return "there"

    register_writer_factory("mine", Answers())
    assert directory_check("mine:x") == "there"


def test_file_in_place_of_folder_raises_on_opening() -> None:
    Path("x").touch()
    assert directory_check("x") is None
    with pytest.raises(NotADirectoryError, match="one of the folders in this path is a file") as caught:
        RecordWriter("x/events")
    assert isinstance(caught.value, StorageError)


def test_registry_supports_mapping_operations() -> None:
    mine = _Factory()
    REGISTERED_FACTORIES["mine"] = mine
    assert list(REGISTERED_FACTORIES) == ["s3", "gs", "mine"]
    assert len(REGISTERED_FACTORIES) == 3
    assert REGISTERED_FACTORIES["mine"] is mine
    assert isinstance(REGISTERED_FACTORIES["gs"], GCSRecordWriterFactory)
    del REGISTERED_FACTORIES["mine"]
    assert "mine" not in REGISTERED_FACTORIES


@pytest.mark.parametrize("factory", [S3RecordWriterFactory(), GCSRecordWriterFactory()])
def test_factories_open_existing_files(factory: S3RecordWriterFactory, sent: list[int]) -> None:
    register_writer_factory("s3", mine := _Factory())
    register_writer_factory("s3", factory)
    assert REGISTERED_FACTORIES["s3"] is not mine
    assert factory.directory_check("far://bucket") is None
    file = factory.open("far://bucket/a/b")
    assert isinstance(file, S3RecordWriter)
    assert (file.bucket_and_path(), file.closed) == (("bucket", "a/b"), False)
    file.write(b"any")
    file.close()
    assert file.closed
    assert objects() == ["a/b"]


def test_registered_s3_factory_precedes_builtin() -> None:
    register_writer_factory("s3", factory := _Factory())
    RecordWriter("s3://bucket/events").close()
    assert factory.opened == ["s3://bucket/events"]


def test_registered_storage_accepts_path_with_single_colon() -> None:
    register_writer_factory(
        "mine", StorageFactory("mine", ("mine",), lambda url, **options: open_memory("memory://one"))
    )
    with RecordWriter("mine:events") as writer:
        writer.write(EVENT)
    assert os.listdir() == []
    assert blocking.read_records("memory://one/events") == [EVENT]


def test_key_error_from_factory_reaches_caller() -> None:
    """tensorboardX took it for an unknown prefix, and wrote a local file named ``foo:bar.rec``."""

    class Broken(_Factory):
        def open(self, path: str) -> _Factory:
            raise KeyError("endpoint")

        def directory_check(self, path: str) -> None:
            raise KeyError("endpoint")

    register_writer_factory("foo", Broken())
    with pytest.raises(KeyError, match="endpoint"):
        RecordWriter("foo:bar.rec")
    with pytest.raises(KeyError, match="endpoint"):
        directory_check("foo:bar")
    assert os.listdir() == []


def test_local_file_named_s3_is_local() -> None:
    """tensorboardX sent it to S3."""
    with RecordWriter("s3") as writer:
        writer.write(EVENT)
    directory_check("gs")
    assert blocking.read_records(Path("s3")) == [EVENT]
    assert Path("gs").is_dir()


def test_unknown_scheme_raises_and_creates_no_file() -> None:
    with pytest.raises(UnknownSchemeError) as caught:
        RecordWriter("nothing://bucket/events")
    assert isinstance(caught.value, FileNotFoundError)  # scripts written for tensorboardX catch FileNotFoundError
    assert os.listdir() == []


def test_lengths_are_little_endian_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """tensorboardX used the machine's native byte order."""
    pack = struct.pack

    def big_endian(form: str, *values: Any) -> bytes:
        return pack(form if form[0] in "<>!=@" else ">" + form, *values)

    monkeypatch.setattr(struct, "pack", big_endian)
    with RecordWriter("x") as writer:
        writer.write(b"abc")
    assert Path("x").read_bytes()[:8] == b"\x03\0\0\0\0\0\0\0"
    assert blocking.read_records("x") == [b"abc"]


def test_large_record_and_reused_buffer_are_written_completely() -> None:
    buffer = bytearray(b"\x01" * (3 << 20))
    with RecordWriter(Path("x")) as writer:
        writer.write(buffer)
        buffer[:] = bytes(len(buffer))
        writer.write(memoryview(buffer))
    assert blocking.read_records("x") == [b"\x01" * (3 << 20), bytes(3 << 20)]


def test_open_file_writes_raw_bytes_to_any_path() -> None:
    for path in ("memory://files/x", "local", "local"):
        file = open_file(path)
        file.write(b"any")
        file.flush()
        file.close()
    with blocking.open_storage("memory://files") as store:
        assert store.get("x") == b"any"
    assert Path("local").read_bytes() == b"any"
