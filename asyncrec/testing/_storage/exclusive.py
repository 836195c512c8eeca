"""Cases for writers that compete for a key. Exactly one of them must win, and each of them must learn the outcome."""

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
    """The cases for exclusive creation and for lost responses."""

    exclusive_parts: bool = True
    """Whether only one of two exclusive writers wins if the object is longer than a chunk. Set this to `False`, and
    explain why, for a store that ignores the condition when it completes a multipart upload, as Ceph 16 does. For short
    objects, exactly one writer must always win."""

    async def test_exclusive_creation(self) -> None:
        """With ``exclusive=True``, an existing object is not replaced, and `ObjectExistsError` is raised."""
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
        """If two writers create the same object, exactly one wins, and the other gets `ObjectExistsError`.

        Claims, manifest segments and other short objects that decide between writers rely on this.
        """
        async with self.open_storage() as storage:
            await self._race(storage, [b"one", b"two!"])

    async def test_exclusive_race_of_several_parts(self) -> None:
        """If two writers create the same object and it is longer than a chunk, exactly one of them wins.

        If both won, each of them would conclude that its shard is stored, although one of the shards has been lost.
        Both may win only if `exclusive_parts` is `False`.
        """
        async with self.open_storage() as storage:
            size = await chunk_of(storage) + 1
            await self._race(storage, [content(size, seed) for seed in (1, 2)], all_kept=self.exclusive_parts)

    async def test_exclusive_creation_over_several_parts(self) -> None:
        """An exclusive writer does not replace an existing multipart object, whatever the new object's size.

        Stores publish short and long objects with different requests, and may check only one of them correctly.
        """
        async with self.open_storage() as storage:
            size = await chunk_of(storage) + 1
            older = content(size, seed=1)
            await storage.put("x/old", older)
            for data in (b"", b"short", content(size, seed=2)):
                with pytest.raises(ObjectExistsError, match="x/old"):
                    await storage.put("x/old", data, exclusive=True)
                assert await self.raw_get(storage, "x/old") == older, (
                    f"the object was replaced by one of {len(data)} bytes"
                )
            assert not await self.raw_unfinished(storage)

    async def test_lost_answer(self) -> None:
        """If an object is published but the response is lost, the object is complete, and `put` still returns its info.

        A writer that mistakes a lost response for a failure would send the same records again, and an exclusive writer
        would mistake its own object for another writer's. Skipped if `losing_an_answer` returns `None`.
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
        assert len(won) == 1 or not all_kept, "both of two exclusive writers of the same key won"
        assert await self.raw_get(storage, "x/race") in [bodies[n] for n in won], (
            "the stored object is not the winner's"
        )
        assert not await self.raw_unfinished(storage)
