"""Cases for responses that do not come from the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.testing._checks import check_equal, content
from asyncrec.testing._kit import nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, check_keys, chunk_of, keys_of

Operation: TypeAlias = Callable[[str], Awaitable[None]]

# An HTML page, an empty body, and the empty responses of other kinds of services.
_BODIES = (b"<html><body>Sign in</body></html>", b"", b'<?xml version="1.0"?><ListAllMyBucketsResult/>', b"{}")
# The maximum number of requests per operation in these cases. The proxy answers each of them in turn.
_MOST_REQUESTS = 6


class StrangerCases(StorageHooks):
    """The cases for a proxy that responds with status 200 in place of the store."""

    async def test_list_answered_by_another(self) -> None:
        """A response that is not a listing is never mistaken for an empty folder: the request is retried or fails.

        Otherwise, the data set would appear to be empty, and would be written a second time.
        """
        async with self.open_storage() as storage:
            keys = [f"s/{n}" for n in range(3)]
            await self.raw_put_many(storage, keys)

            async def listed(key: str) -> None:
                check_keys(await keys_of(storage, "s/"), keys, "listing, after a response that was not the store's")

            for body in _BODIES:
                await self._answered(storage, 1, body, listed, "s/")

    async def test_read_answered_by_another(self) -> None:
        """If a proxy answers a request, an existing object is still found and read correctly, or an error is raised.

        The error must not be an `ObjectNotFoundError`, because the object exists.
        """
        async with self.open_storage() as storage:
            looked, read = await self._reads(storage, "s/read")
            for body in _BODIES:
                for number in (1, 2):
                    await self._answered(storage, number, body, looked, "s/read")
                    await self._answered(storage, number, body, read, "s/read")

    async def test_read_answered_by_static_page(self) -> None:
        """A page with an ETag and a date is not mistaken for an object that the storage has read before.

        By then, the storage has seen how the store marks its own responses.
        """
        async with self.open_storage() as storage:
            looked, read = await self._reads(storage, "s/page")
            for operation in (looked, read):
                await operation("s/page")
                for number in (1, 2):
                    answered = self.answered_by_static_page(storage, number, _BODIES[0])
                    await self._operated(answered, "answered_by_static_page", operation, "s/page")

    async def _reads(self, storage: Storage, key: str) -> tuple[Operation, Operation]:
        """Store an object, and return operations that check what the storage finds and reads."""
        data = content(70_000)
        await self.raw_put(storage, key, data)

        async def looked(key: str) -> None:
            assert (await storage.head(key)).size == len(data)

        async def read(key: str) -> None:
            check_equal(await storage.get(key), data, key)

        return looked, read

    async def test_delete_answered_by_another(self) -> None:
        """If `delete` returns without an error, the object is deleted, even if a proxy answered a request."""
        async with self.open_storage() as storage:

            async def deleted(key: str) -> None:
                await storage.delete(key)
                check_equal(await self.raw_get(storage, key), None, f"{key}, deleted")

            for n, body in enumerate(_BODIES):
                await self.raw_put(storage, f"s/{n}", b"x")
                await self._answered(storage, 1, body, deleted, f"s/{n}")

    async def test_write_answered_by_another(self) -> None:
        """If `put` returns without an error, the object is published, even if a proxy answered one of its requests."""
        async with self.open_storage() as storage:
            size = await chunk_of(storage) + 1
            for data in (b"short", content(size)):
                for exclusive in (False, True):

                    async def written(key: str, data: bytes = data, exclusive: bool = exclusive) -> None:
                        await storage.put(key, data, exclusive=exclusive)
                        check_equal(await self.raw_get(storage, key), data, f"{key}, published")

                    for number in range(1, _MOST_REQUESTS + 1):
                        await self._answered(
                            storage, number, _BODIES[number % 2], written, f"s/{len(data)}-{exclusive}-{number}"
                        )
            assert not await self.raw_unfinished(storage)

    async def _answered(self, storage: Storage, number: int, body: bytes, operation: Operation, key: str) -> None:
        answered = self.answered_by_another(storage, number, body)
        await self._operated(answered, "answered_by_another", operation, key)

    async def _operated(
        self,
        answered: AbstractContextManager[object] | None,
        hook: str,
        operation: Operation,
        key: str,
    ) -> None:
        if answered is None:
            nothing_to_try(f"{hook} returns None, so no foreign response can be simulated")
        with answered:
            try:
                await operation(key)
            except (ObjectNotFoundError, ObjectExistsError) as error:
                raise AssertionError(f"{key}: another server's response was accepted as the store's") from error
            except StorageError:
                return
