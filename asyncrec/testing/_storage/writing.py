"""Cases about what a sink does with its bytes, and what it leaves when it is abandoned."""

from __future__ import annotations

from functools import partial

from asyncrec.testing import _sink_checks as sink_checks
from asyncrec.testing._checks import check_info
from asyncrec.testing._storage.hooks import StorageHooks


class WritingCases(StorageHooks):
    """The cases of sinks, one at a time."""

    async def test_sizes(self) -> None:
        """Objects of no byte, one, and lengths at, below and above the chunk's come out as they went in."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_sizes(open_sink, read=partial(self.raw_get, storage))

    async def test_buffers_reused(self) -> None:
        """The caller's buffers may be overwritten once `send` has returned."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_buffers_reused(open_sink, read=partial(self.raw_get, storage))

    async def test_abort_on_error(self) -> None:
        """An exception in the body leaves nothing visible, nothing dangling, and an older object untouched."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_abort(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-abort-over"}

    async def test_abort_on_cancellation(self) -> None:
        """Cancelled at any await of opening, sending and exiting, a sink leaves the whole object or nothing."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_cancellation(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-cancel"}

    async def test_send_given_up(self) -> None:
        """A send that was cancelled leaves the object to be abandoned, though the body goes on as if nothing were."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_send_given_up(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )

    async def test_concurrent_sinks(self) -> None:
        """Sinks open at the same time do not mix."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_concurrent_sinks(open_sink, read=partial(self.raw_get, storage))

    async def test_flush(self) -> None:
        """`flush` publishes nothing and loses nothing."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_flush(
                open_sink,
                read=partial(self.raw_get, storage),
                unfinished=partial(self.raw_unfinished, storage),
                flush_level=storage.flush_level,
            )

    async def test_sink_used_after_exit(self) -> None:
        """A sink whose context has exited is closed, as it was before it was entered."""
        async with self._sinks() as (_, open_sink):
            await sink_checks.check_closed_sink(open_sink)

    async def test_overwrite(self) -> None:
        """Without ``exclusive`` an object is replaced, at once and whole, by a longer one and by a shorter one."""
        async with self.open_storage() as storage:
            etags = set()
            for data in (b"first, of some length", b"short", b"third, the longest of all of them", b""):
                info = await storage.put("k/over", data)
                check_info(info, "k/over", data)
                assert await self.raw_get(storage, "k/over") == data
                etags.add(info.etag)
            assert len(etags) == 4, "two different contents had one etag"
