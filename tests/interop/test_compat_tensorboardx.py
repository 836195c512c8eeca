"""`asyncrec.compat.tensorboardx` with TensorBoard's readers and tensorboardX's own SummaryWriter.

The first tests are rewritten from those of tensorboardX's record writer and event file writer (in its repository:
``tests/record_writer_test.py``, ``tests/test_record_writer.py`` and ``tests/event_file_writer_test.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import tensorboardX
from moto.server import ThreadedMotoServer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tensorboardX import event_file_writer, record_writer
from tensorboardX.proto import event_pb2
from tensorboardX.proto.summary_pb2 import Summary

from asyncrec import blocking
from asyncrec.compat import tensorboardx
from asyncrec.compat.tensorboardx import RecordWriter, install, make_valid_tf_name

KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}


@pytest.fixture
def installed() -> Iterator[None]:
    with install():
        yield


def event(step: int, value: float = 0.5) -> event_pb2.Event:
    summary = Summary(value=[Summary.Value(tag="loss", simple_value=value)])
    return event_pb2.Event(step=step, wall_time=1000.0 + step, summary=summary)


# -- rewritten from tensorboardX's own tests --------------------------------------------------------------------------


def test_record_occupies_sixteen_bytes_more_than_payload(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path / "x"))
    writer.write(b"x" * 64)
    writer.close()
    assert (tmp_path / "x").stat().st_size == 8 + 4 + 64 + 4


@pytest.mark.parametrize("records", [[b""], [b"hello world"] * 50], ids=["empty", "fifty"])
def test_tensorboard_record_reader_reads_files(tmp_path: Path, records: list[bytes]) -> None:
    writer = RecordWriter(str(tmp_path / "x"))
    for record in records:
        writer.write(record)
    writer.close()
    reader = PyRecordReader_New(str(tmp_path / "x"))
    for record in records:
        reader.GetNext()
        assert reader.record() == record


def test_tf_name_is_sanitized() -> None:
    assert make_valid_tf_name("$ave/&sound") == "._ave/_sound"


def test_event_file_writer_writes_version_and_events(tmp_path: Path, installed: None) -> None:
    writer = event_file_writer.EventFileWriter(str(tmp_path), filename_suffix=".event_horizon")
    assert type(writer._ev_writer._py_recordio_writer) is RecordWriter
    fake = event(1)
    writer.add_event(fake)
    writer.close()
    (path,) = tmp_path.iterdir()
    assert path.suffix == ".event_horizon"
    reader = PyRecordReader_New(str(path))
    reader.GetNext()
    assert event_pb2.Event.FromString(reader.record()).file_version == "brain.Event:2"
    reader.GetNext()
    assert reader.record() == fake.SerializeToString()


# -- a live file ------------------------------------------------------------------------------------------------------


def test_tensorboard_event_loader_follows_growing_file(tmp_path: Path) -> None:
    """One loader is polled repeatedly, as by TensorBoard; it returns each event once, as soon as it was flushed."""
    path = str(tmp_path / "events.out.tfevents.1.host")
    writer = RecordWriter(path)
    writer.write(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
    writer.flush()
    loader = EventFileLoader(path)
    assert [each.file_version for each in loader.Load()] == ["brain.Event:2"]
    for step in range(200):
        writer.write(event(step).SerializeToString())
        writer.write(event(step).SerializeToString())
        writer.flush()
        assert [each.step for each in loader.Load()] == [step, step]
    with RecordWriter(path) as another:  # a writer from the same second: the loader reads both
        another.write(event(200).SerializeToString())
    assert [each.step for each in loader.Load()] == [200]
    writer.write(event(201).SerializeToString())
    writer.close()
    assert [each.step for each in loader.Load()] == [201]


def test_partial_record_is_loaded_once_complete(tmp_path: Path) -> None:
    """Large records are written to the file before a flush."""
    path = str(tmp_path / "events.out.tfevents.1.host")
    with RecordWriter(path) as writer:
        writer.write(event(1).SerializeToString())
        writer.flush()
        loader = EventFileLoader(path)
        assert [each.step for each in loader.Load()] == [1]
        large = event(2)
        large.summary.value[0].tag = "x" * 300_000
        writer.write(large.SerializeToString())
        early = [each.step for each in loader.Load()]
        writer.flush()
        assert early + [each.step for each in loader.Load()] == [2]


def test_accumulator_sees_all_summary_writer_events(tmp_path: Path, installed: None) -> None:
    writer = tensorboardX.SummaryWriter(str(tmp_path))
    accumulator = EventAccumulator(str(tmp_path))
    for step in range(5):
        writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_text("words", f"step {step}", step)
    writer.close()
    accumulator.Reload()
    assert [each.step for each in accumulator.Scalars("loss")] == list(range(5))
    assert len(accumulator.Tensors("words/text_summary")) == 5


# -- SummaryWriter with our record writer -----------------------------------------------------------------------------


def test_summary_writer_writes_to_store(installed: None) -> None:
    with tensorboardX.SummaryWriter("memory://compat-summary/logs") as writer:
        writer.add_scalar("loss", 0.25, 7)
    with blocking.open_storage("memory://compat-summary") as store:
        (info,) = store.list_objects("logs/")
        records = blocking.read_records(info.key, storage=store.storage)
    version, scalar = map(event_pb2.Event.FromString, records)
    assert version.file_version == "brain.Event:2"
    assert (scalar.step, scalar.summary.value[0].simple_value) == (7, 0.25)


def test_both_writers_produce_same_events(tmp_path: Path) -> None:
    def write(folder: Path) -> list[bytes]:
        with tensorboardX.SummaryWriter(str(folder)) as writer:
            for step in range(100):
                writer.add_scalar("loss", step / 3, step, walltime=step)
        (path,) = folder.iterdir()
        return blocking.read_records(path)[1:]  # the first event contains the time

    theirs = write(tmp_path / "theirs")
    with install():
        assert write(tmp_path / "ours") == theirs
    assert len(theirs) == 100


def test_install_keeps_factories_and_is_reverted_on_exit(tmp_path: Path) -> None:
    opened = []

    class Factory:
        def open(self, path: str) -> object:
            opened.append(path)
            return open(tmp_path / "x", "wb")

        def directory_check(self, path: str) -> None:
            opened.append(path)

    before = record_writer.RecordWriter, record_writer.open_file, tensorboardX.RecordWriter
    record_writer.register_writer_factory("theirs", Factory())
    init = event_file_writer.EventFileWriter.__init__
    with install():
        assert record_writer.RecordWriter is tensorboardX.RecordWriter is RecordWriter
        assert record_writer.register_writer_factory is tensorboardx.register_writer_factory
        with tensorboardX.SummaryWriter("theirs:logs") as writer:
            writer.add_scalar("loss", 1.0, 1)
    assert (record_writer.RecordWriter, record_writer.open_file, tensorboardX.RecordWriter) == before
    assert event_file_writer.EventFileWriter.__init__ is init
    assert opened[0] == "theirs:logs"
    assert len(blocking.read_records(tmp_path / "x")) == 2


def test_unclosed_summary_writer_keeps_every_event(tmp_path: Path) -> None:
    """`atexit` closes tensorboardX's SummaryWriter after the event loop of `asyncrec.blocking` has stopped."""
    program = f"""
from asyncrec import blocking
from asyncrec.compat.tensorboardx import install
from tensorboardX import SummaryWriter
install()
blocking.write_records({str(tmp_path / "other")!r}, [b"starts the event loop"])
writer = SummaryWriter({str(tmp_path / "logs")!r})
for step in range(500):
    writer.add_scalar("loss", 1.0, step)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    (path,) = (tmp_path / "logs").iterdir()
    steps = [event_pb2.Event.FromString(record).step for record in blocking.read_records(path)]
    assert steps == [0, *range(500)]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Start an S3 store with a bucket that outlives the scripts writing to it; return its endpoint."""
    server = ThreadedMotoServer(port=0)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **KEYS).create_bucket(Bucket="bucket")
    yield endpoint
    server.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("end", "flush_secs"), [("", 120), ("raise KeyError", 120), ("raise SystemExit(3)", 0)])
def test_unclosed_summary_writer_on_store_keeps_every_event(
    store: str, tmp_path: Path, end: str, flush_secs: int
) -> None:
    """tensorboardX's exit handler runs after the objects of stores are closed, so its queue is emptied before that."""
    folder = f"s3://bucket/{tmp_path.name}"
    program = f"""
from asyncrec.compat.tensorboardx import install
from tensorboardX import SummaryWriter
install()
writer = SummaryWriter({folder!r}, flush_secs={flush_secs})
for step in range(200):
    writer.add_scalar("loss", 1.0, step)
{end}
"""
    environment = {**os.environ, **{name.upper(): value for name, value in KEYS.items()}}
    environment |= {"S3_ENDPOINT": store, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True)
    assert done.stderr.strip().split("\n")[-1] in ("", "KeyError")
    assert "Thread" not in done.stderr
    client = boto3.client("s3", endpoint_url=store, region_name="us-east-1", **KEYS)
    (found,) = client.list_objects_v2(Bucket="bucket", Prefix=folder.partition("bucket/")[2])["Contents"]
    client.download_file("bucket", found["Key"], str(tmp_path / "events"))
    steps = [event_pb2.Event.FromString(record).step for record in blocking.read_records(tmp_path / "events")]
    assert steps == [0, *range(200)]
