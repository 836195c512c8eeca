"""asyncrec reads files of tensorboardX's RecordWriter and SummaryWriter, and ours can be used in their place."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest
import tensorflow as tf
from tensorboardX import SummaryWriter
from tensorboardX.record_writer import RecordWriter, make_valid_tf_name

import asyncrec

MIB = 1 << 20


def records() -> list[bytes]:
    source = random.Random(6)
    return [source.randbytes(length) for length in [0, 1, 0, 16, 4096, 3 * MIB, *source.choices(range(900), k=800), 0]]


def read(path: Path) -> list[bytes]:
    async def main() -> list[bytes]:
        return await asyncrec.read_records(str(path))

    return anyio.run(main)


def test_records_of_record_writer_are_readable(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path / "theirs"))
    for record in records():
        writer.write(record)
    writer.close()
    assert read(tmp_path / "theirs") == records()


def test_both_writers_produce_same_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        await asyncrec.write_records(str(tmp_path / "ours"), records())

    anyio.run(main)
    writer = RecordWriter(str(tmp_path / "theirs"))
    for record in records():
        writer.write(record)
    writer.close()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_summary_writer_events_pass_through_unchanged(tmp_path: Path) -> None:
    """We read and rewrite them, and TensorFlow reads the result as events."""
    with SummaryWriter(str(tmp_path)) as summary:
        for step in range(100):
            summary.add_scalar("loss", 1 / (step + 1), step)
    (path,) = tmp_path.glob("events.out.tfevents.*")
    events = read(path)
    assert b"brain.Event:2" in events[0]

    async def main() -> None:
        await asyncrec.write_records(str(tmp_path / "copy"), events)

    anyio.run(main)
    steps = [event.step for event in tf.compat.v1.train.summary_iterator(str(tmp_path / "copy")) if event.summary.value]
    assert steps == list(range(100))


@pytest.mark.parametrize("name", ["", "_x", "a b", "loss/train", "ü", "..", "a__b", "1", "-a", "a\tb c", "/a"])
def test_tf_names_are_sanitized_identically(name: str) -> None:
    assert asyncrec.storage.make_valid_tf_name(name) == make_valid_tf_name(name)
