"""Cases about which of several writers wins, and whether it learns that it has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from asyncrec.errors import ObjectExistsError
from asyncrec.storage._base import Storage
from asyncrec.testing._checks import check_info, content, send_all
from asyncrec.testing._kit import nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, chunk_of
from asyncrec.tools._probes import race


class ExclusiveCases(StorageHooks):
    """The cases of objects that must be new, and of answers that are lost."""

    exclusive_parts: bool = True
    """Whether of two exclusive writers of objects longer than a chunk one wins. `False`, with a comment why, is for a
    store that ignores the condition when it puts parts together, as Ceph 16 does. Short objects know no exception."""

    async def test_exclusive_creation(self) -> None:
        """With ``exclusive`` a new object is made, one that is there is kept, and the error says so."""
        async with self.open_storage() as storage:
            await storage.put("x/one", b"mine", exclusive=True)
            with pytest.raises(ObjectExistsError, match="x/one"):
                await storage.put("x/one", b"yours", exclusive=True)
            async with storage.open_sink("x/chunk") as probe:
                chunk = probe.chunk_size
            with pytest.raises(ObjectExistsError):
                await storage.put("x/one", content(chunk + 1), exclusive=True)
            assert await self.raw_get(storage, "x/one") == b"mine"
            assert not await self.raw_unfinished(storage)
            await storage.put("x/big", content(chunk + 1), exclusive=True)
            assert await self.raw_get(storage, "x/big") == content(chunk + 1)
            with suppress(ZeroDivisionError):
                async with storage.open_sink("x/aborted", exclusive=True) as sink:
                    await send_all(sink, b"never")
                    raise ZeroDivisionError
            await storage.put("x/aborted", b"free again", exclusive=True)
            assert await self.raw_get(storage, "x/aborted") == b"free again"

    async def test_exclusive_race(self) -> None:
        """Of two writers that both find nothing there exactly one wins; the other gets `ObjectExistsError`.

        A claim, a segment of a manifest and every other short object that decides between writers relies on it.
        """
        async with self.open_storage() as storage:
            await self._race(storage, [b"one", b"two!"])

    async def test_exclusive_race_of_several_parts(self) -> None:
        """The same holds for objects longer than a chunk; if `exclusive_parts` is `False` the last one may win, too.

        Without it two writers of one shard both learn that it is theirs, and one of them has lost it.
        """
        async with self.open_storage() as storage:
            size = await chunk_of(storage) + 1
            await self._race(storage, [content(size, seed) for seed in (1, 2)], all_kept=self.exclusive_parts)

    async def test_exclusive_creation_over_several_parts(self) -> None:
        """An object of several parts that is there is kept, whether a short one or as long a one is to be created.

        Stores publish the two by different requests, of which one may be right and the other wrong.
        """
        async with self.open_storage() as storage:
            size = await chunk_of(storage) + 1
            older = content(size, seed=1)
            await storage.put("x/old", older)
            for data in (b"", b"short", content(size, seed=2)):
                with pytest.raises(ObjectExistsError, match="x/old"):
                    await storage.put("x/old", data, exclusive=True)
                assert await self.raw_get(storage, "x/old") == older, f"replaced by one of {len(data)} bytes"
            assert not await self.raw_unfinished(storage)

    async def test_lost_answer(self) -> None:
        """The object is published and the answer is lost: it is there once, whole, and its writer learns that it is.

        A writer that takes the loss for a failure sends the same records again, and an exclusive one takes its own
        object for another's. If a store's tests cannot lose an answer, `losing_an_answer` says so: nothing is tried.
        """
        async with self.open_storage() as storage:
            size = await chunk_of(storage) + 1
            for n, data in enumerate((b"", b"short", content(size))):
                for exclusive in (False, True):
                    key = f"lost/{n}-{exclusive}"
                    losing = self.losing_an_answer(storage)
                    if losing is None:
                        nothing_to_try("losing_an_answer returns None, so no answer can be lost")
                    with losing:
                        info = await storage.put(key, data, exclusive=exclusive)
                    check_info(info, key, data)
                    assert await self.raw_get(storage, key) == data
                    assert (await storage.head(key)).etag == info.etag
            assert not await self.raw_unfinished(storage)

    async def _race(self, storage: Storage, bodies: Sequence[bytes], *, all_kept: bool = True) -> None:
        won = await race(storage, "x/race", bodies)
        assert won, "neither of two exclusive writers of the same key won"
        assert len(won) == 1 or not all_kept, "both of two exclusive writers of the same key were told that they won"
        assert await self.raw_get(storage, "x/race") in [bodies[n] for n in won], (
            "the stored object is not the winner's"
        )
        assert not await self.raw_unfinished(storage)
