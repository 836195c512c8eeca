"""A ticket reaches a level once the slowest queue has reached it. A wait ends with progress, a failure or an exit."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

import asyncrec
from asyncrec._shards.writing.acknowledgements import Acknowledgements
from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


@dataclass
class Standing:
    """A stub with only the part of a queue that `Acknowledgements` uses."""

    first_uncommitted: int | None = None
    first_unspooled: int | None = None
    error: BaseException | None = None

    @property
    def levels(self) -> Standing:
        return self


def progress_of(*queues: Standing) -> Acknowledgements:
    return Acknowledgements("pages", cast(Any, queues))


async def settled() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("uncommitted", "unspooled", "levels"),
    [
        ((None, None), (None, None), "ccc"),
        ((2, None), (None, None), "css"),
        ((2, 3), (2, None), "cbb"),
        ((3, 2), (None, 3), "csb"),
        ((1, 3), (3, 1), "bbb"),
        ((1, 1), (4, None), "sss"),
    ],
)
async def test_ticket_reaches_level_once_every_queue_reaches_level(
    uncommitted: tuple[int | None, ...], unspooled: tuple[int | None, ...], levels: str
) -> None:
    queues = [Standing(*each) for each in zip(uncommitted, unspooled, strict=True)]
    for order in (queues, queues[::-1]):
        progress = progress_of(*order)
        assert "".join(progress.level_of(ticket)[0] for ticket in (1, 2, 3)) == levels


async def test_commit_wait_ends_after_last_queue_commits() -> None:
    queues = [Standing(1), Standing(2), Standing(3)]
    progress = progress_of(*queues)
    done: list[int] = []

    async def wait(ticket: int) -> None:
        await progress.committed(ticket)
        done.append(ticket)

    async with anyio.create_task_group() as group:
        for ticket in (1, 2, 3):
            group.start_soon(wait, ticket)
        await settled()
        assert done == []
        queues[2].first_uncommitted = queues[1].first_uncommitted = None
        progress.changed()
        await settled()
        assert done == []
        queues[0].first_uncommitted = 2
        progress.changed()
        await settled()
        assert done == [1]
        queues[0].first_uncommitted = 4
        progress.changed()
    assert sorted(done) == [1, 2, 3]


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_every_waiter_gets_own_copy_of_queue_error(failing: int) -> None:
    queues = [Standing(1), Standing(1), Standing(1)]
    progress = progress_of(*queues)
    caught: list[BaseException] = []

    async def wait() -> None:
        with pytest.raises(StorageError) as raised:
            await progress.committed(1)
        caught.append(raised.value)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await settled()
        error = StorageError("disk")
        queues[failing].error = error
        progress.failed(error)
        progress.changed()
    assert len(caught) == len({id(each) for each in caught}) == 2
    assert all(each.__cause__ is error and each is not error for each in caught)
    with pytest.raises(StorageError) as raised:
        progress.raise_failure()
    assert raised.value is error


async def test_first_error_is_kept_unless_cancellation() -> None:
    progress = progress_of(Standing())
    progress.check()
    progress.raise_failure()
    first, second = StorageError("first"), StorageError("second")
    progress.failed(KeyboardInterrupt())
    with pytest.raises(anyio.ClosedResourceError, match="the writer was cancelled before it finished"):
        progress.check()
    with pytest.raises(anyio.ClosedResourceError):
        progress.raise_failure()
    progress.failed(first)
    progress.failed(second)
    progress.failed(KeyboardInterrupt())
    assert progress.error is first


async def test_ended_writer_confirms_committed_tickets_and_fails_others() -> None:
    queues = [Standing(None), Standing(5, 5)]
    progress = progress_of(*queues)
    progress.ended = True
    await progress.committed(4)
    with pytest.raises(anyio.ClosedResourceError, match="ended before ticket 5 was committed"):
        await progress.committed(5)


async def test_long_wait_is_logged_once_per_thirty_seconds(caplog: pytest.LogCaptureFixture) -> None:
    progress = progress_of(Standing(1))
    with caplog.at_level(logging.WARNING, "asyncrec"):
        with anyio.move_on_after(29):
            await progress.committed(1)
        assert not caplog.messages
        with anyio.move_on_after(70):
            await progress.committed(1)
    assert [message.partition(" s ")[0] for message in caplog.messages] == ["pages: still waiting after 30"] * 2


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"record %06d" % i for i in range(start, start + count)]


@pytest.mark.parametrize("open_shards", [1, 2, 5])
async def test_ticket_is_spooled_after_all_earlier_writes(tmp_path: Any, open_shards: int) -> None:
    """Acknowledged records are in a journal, whether callers wait one at a time or all at once."""
    async with asyncrec.open_sharded_writer(tmp_path / "pages", open_shards=open_shards) as writer:
        acknowledged: list[bytes] = []

        async def work(record: bytes) -> None:
            ticket = await writer.write(record)
            await writer.wait(ticket, "spooled")
            journals = b"".join(path.read_bytes() for path in tmp_path.glob(".pages-*.tfrecord.*.partial"))
            assert all(each in journals for each in numbered(int(record[-6:])) if each in acknowledged)
            assert record in journals
            acknowledged.append(record)

        for record in numbered(open_shards + 1):
            await work(record)
        async with anyio.create_task_group() as group:
            for record in numbered(20, open_shards + 1):
                group.start_soon(work, record)
        assert await writer.flush() == "spooled"
    assert len(acknowledged) == open_shards + 21


@pytest.mark.parametrize("open_shards", [1, 3])
async def test_failed_close_reports_no_unreached_level(open_shards: int) -> None:
    """Wherever the store fails during the exit, only records in a manifest are acknowledged as "committed".

    Callers that were waiting and callers that ask afterwards get the same result.
    """
    calm = FlakyStorage(MemoryStorage())
    async with asyncrec.open_sharded_writer("pages", storage=calm, open_shards=open_shards) as writer:
        opened = len(calm.operations)
        await writer.write_many(numbered(6))
    for when in ("before", "after"):
        for k in range(opened, len(calm.operations)):
            storage = FlakyStorage(MemoryStorage(), {k: Fault(when=cast(Any, when), for_good=True)})
            told: dict[int, bool] = {}

            async def wait(ticket: int, writer: asyncrec.ShardedWriter, told: dict[int, bool]) -> None:
                try:
                    await writer.wait(ticket, "committed")
                    told[ticket] = True
                except (OSError, anyio.ClosedResourceError):
                    told[ticket] = False

            async with anyio.create_task_group() as group:
                try:
                    async with asyncrec.open_sharded_writer(
                        "pages", storage=storage, open_shards=open_shards
                    ) as writer:
                        for ticket, record in enumerate(numbered(6), 1):
                            assert await writer.write(record) == ticket
                            group.start_soon(wait, ticket, writer, told)
                except TransientStorageError:
                    pass
            found: set[bytes] = set()
            try:
                manifest = await asyncrec.read_manifest("pages", storage=storage._storage)
            except asyncrec.errors.ObjectNotFoundError:
                pass
            else:
                for shard in manifest.shards:
                    found |= set(await asyncrec.read_records(shard.path, storage=storage._storage))
            assert len(told) == 6
            for ticket, record in enumerate(numbered(6), 1):
                assert not told[ticket] or record in found, (when, calm.operations[k])
                try:
                    await writer.wait(ticket, "committed")
                except (OSError, anyio.ClosedResourceError):
                    assert not told[ticket], (when, calm.operations[k])
                else:
                    assert record in found, (when, calm.operations[k])
            for call in (writer.flush, writer.commit, lambda writer=writer: writer.write(b"late")):
                with pytest.raises((OSError, anyio.ClosedResourceError)):
                    await call()


async def test_spooled_records_are_recovered_after_failed_local_close(tmp_path: Any) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(RuntimeError):
        async with asyncrec.open_sharded_writer("pages", storage=storage, on_error="discard") as writer:
            first = await writer.write(b"flushed")
            await writer.wait(first, "spooled")
            second = await writer.write(b"not flushed")
            raise RuntimeError
    with pytest.raises(anyio.ClosedResourceError):
        await writer.wait(second, "committed")
    with pytest.raises(anyio.ClosedResourceError):
        await writer.wait(second, "spooled")
    assert (await asyncrec.recover("pages", storage=storage)).records >= 1
