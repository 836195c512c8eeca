"""`race` has exclusive writers of one key send everything before the first of them publishes."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec.errors import ObjectExistsError, StorageError
from asyncrec.storage._base import Buffer, Storage


async def race(storage: Storage, key: str, bodies: Sequence[Buffer]) -> list[int]:
    """The numbers of those who were told that they created the object; one, where the store keeps them apart.

    Raises:
        StorageError: one of them failed for another reason than that the object is there.
    """
    won: list[int] = []
    failed: list[StorageError] = []
    missing = set(range(len(bodies)))
    all_ready = anyio.Event()

    def ready(n: int) -> None:
        missing.discard(n)
        if not missing:
            all_ready.set()

    async def write(n: int) -> None:
        try:
            async with storage.open_sink(key, exclusive=True) as sink:
                view = memoryview(bodies[n])
                while view:
                    size = sink.chunk_size
                    await sink.send([view[:size]])
                    view = view[size:]
                ready(n)
                await all_ready.wait()
        except ObjectExistsError:
            return
        except StorageError as error:
            failed.append(error)
        else:
            won.append(n)
        finally:
            ready(n)

    async with TaskScope() as scope:
        for n in range(len(bodies)):
            scope.start_soon(write, n)
    if failed:
        raise failed[0]
    return won
