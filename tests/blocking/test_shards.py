from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec import blocking
from asyncrec._records.writing.write_batch import BATCH_RECORDS


def records_of(dataset: Path) -> list[bytes]:
    return [record for path in blocking.list_shards(dataset) for record in blocking.read_records(path)]


def test_tickets_are_returned_immediately_and_can_be_awaited(tmp_path: Path) -> None:
    count = 2 * BATCH_RECORDS + 5
    with blocking.open_sharded_writer(tmp_path / "pages", max_shard_records=500) as writer:
        tickets = [writer.write(b"%d" % number, key=str(number)) for number in range(count)]
        assert tickets == list(range(1, count + 1))
        writer.wait(tickets[-1], "spooled")
        writer.wait(tickets[499], "committed")
        assert writer.commit() == "committed"
        writer.wait(tickets[-1], "committed")
        assert writer.write_many([b"x", b"y"]) == count + 2
        assert writer.write(b"z") == count + 3
    assert blocking.read_manifest(tmp_path / "pages").records == count + 3


def test_duplicate_write_returns_last_ticket(tmp_path: Path) -> None:
    """The tickets are those that an asynchronous writer returns, whether records are buffered or already handed on."""
    with blocking.open_sharded_writer(tmp_path / "pages", on_duplicate="skip") as writer:
        assert writer.write(b"a", key="a") == 1
        assert writer.write(b"a again", key="a") == 1
        assert writer.has("a")
        writer.flush()
        assert writer.write(b"a once more", key="a") == 1
        assert writer.write(b"b", key="b") == 2
        writer.wait(2, "spooled")
        assert writer.stats().duplicates == 2
        assert not writer.has("c")
    assert records_of(tmp_path / "pages") == [b"a", b"b"]


def test_partition_by_runs_and_raises_in_callers_thread(tmp_path: Path) -> None:
    def partition_by(record: bytes) -> str:
        if record == b"bad":
            raise LookupError("no partition")
        return record[:1].decode()

    with blocking.open_sharded_writer(tmp_path / "pages", open_shards=4, partition_by=partition_by) as writer:
        with pytest.raises(LookupError):
            writer.write(b"bad")
        assert writer.write(b"a1") == 1
        assert writer.write_many([b"b1", b"a2", b"b2"]) == 4
    shards = [set(blocking.read_records(path)) for path in blocking.list_shards(tmp_path / "pages")]
    assert any({b"a1", b"a2"} <= shard for shard in shards)
    assert any({b"b1", b"b2"} <= shard for shard in shards)


def test_write_rejects_invalid_key_or_partition_at_once(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages") as writer:
        with pytest.raises(TypeError):
            writer.write(b"1", key=1.5)  # type: ignore[arg-type]  # deliberately wrong
        with pytest.raises(TypeError):
            writer.write(b"1", partition=1.5)  # type: ignore[arg-type]  # deliberately wrong
        assert writer.write(b"2") == 1
    assert records_of(tmp_path / "pages") == [b"2"]


def test_rolling_writer_commits_records_after_failed_body(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), blocking.open_sharded_writer(tmp_path / "pages") as writer:
        writer.write(b"1")
        raise ZeroDivisionError
    assert records_of(tmp_path / "pages") == [b"1"]


def test_fixed_shards_are_discarded_after_failed_body(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), blocking.open_sharded_writer(tmp_path / "pages", num_shards=2) as writer:
        writer.write(b"1")
        raise ZeroDivisionError
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_wait_rejects_ticket_never_issued(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages") as writer:
        ticket = writer.write(b"1")
        with pytest.raises(ValueError, match="no write has the ticket"):
            writer.wait(ticket + 1, "spooled")


def test_fixed_shards_reject_commit(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages", num_shards=2) as writer:
        with pytest.raises(RuntimeError, match="committed together"):
            writer.commit()
        writer.write_many([b"1", b"2", b"3"])
    assert isinstance(blocking.read_manifest(tmp_path / "pages"), asyncrec.Manifest)
    assert sorted(records_of(tmp_path / "pages")) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sharded_writer_runs_inside_either_event_loop(tmp_path: Path, backend: str) -> None:
    async def program() -> None:
        with blocking.open_sharded_writer(tmp_path / "pages") as writer:
            writer.write(b"a")
            writer.flush()
            writer.write(b"b")

    anyio.run(program, backend=backend)
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        assert list(dataset) == [b"a", b"b"]


def test_source_position_follows_collected_records(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages") as writer:
        writer.write(b"collected")
        assert writer.write(b"0", source="q", position=0) == 2
        assert writer.write_many([b"1", b"1"], source="q", position=1) == 4
        assert writer.write(b"again", source="q", position=1) == 4
        assert writer.advance("q", 2) == 4
        assert writer.progress == {"q": 2}
        assert (writer.take("q"), writer.take("new")) == (2, None)
        assert writer.write(b"more") == 5
        writer.release("q")
        assert writer.progress == {}
    assert [*blocking.read_records(next(tmp_path.glob("*.tfrecord")))] == [b"collected", b"0", b"1", b"1", b"more"]
