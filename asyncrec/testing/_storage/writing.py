"""Cases of sinks: the bytes that they store, and the state that an abandoned sink leaves."""

from __future__ import annotations

from functools import partial

from asyncrec.testing import _sink_checks as sink_checks
from asyncrec.testing._checks import check_info
from asyncrec.testing._storage.hooks import StorageHooks


class WritingCases(StorageHooks):
    """The cases of sinks, one at a time."""

    async def test_sizes(self) -> None:
        """Objects of no bytes, one byte, and lengths at, below and above the chunk size are stored unchanged."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_sizes(open_sink, read=partial(self.raw_get, storage))

    async def test_buffers_reused(self) -> None:
        """The caller's buffers may be overwritten once `send` has returned."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_buffers_reused(open_sink, read=partial(self.raw_get, storage))

    async def test_abort_on_error(self) -> None:
        """An exception in the body leaves no object and no unfinished upload, and an older object is unchanged."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_abort(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-abort-over"}

    async def test_abort_on_cancellation(self) -> None:
        """If opening, sending or exiting is cancelled at any await, the sink leaves the whole object or nothing."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_cancellation(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )
            assert set(await self.raw_list(storage)) == {"check-chunk-size", "check-cancel"}

    async def test_send_given_up(self) -> None:
        """After a cancelled send, the object is not published, even if the body continues normally."""
        async with self._sinks() as (storage, open_sink):
            await sink_checks.check_send_given_up(
                open_sink, read=partial(self.raw_get, storage), unfinished=partial(self.raw_unfinished, storage)
            )

    async def test_concurrent_sinks(self) -> None:
        """Sinks that are open at the same time do not mix."""
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
        """A sink is closed before its context is entered and after it exits."""
        async with self._sinks() as (_, open_sink):
            await sink_checks.check_closed_sink(open_sink)

    async def test_overwrite(self) -> None:
        """Without ``exclusive``, a longer or shorter object replaces an existing object atomically."""
        async with self.open_storage() as storage:
            etags = set()
            for data in (b"first, of some length", b"short", b"third, the longest of all of them", b""):
                info = await storage.put("k/over", data)
                check_info(info, "k/over", data)
                assert await self.raw_get(storage, "k/over") == data
                etags.add(info.etag)
            assert len(etags) == 4, "two different contents had one etag"
