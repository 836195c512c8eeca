"""If a store rejects a new writer's first request or does not respond, the caller quickly gets a clear error."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import (
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage import Storage, retrying
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Call, Fault, FlakyStorage, T, _Around

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


def refusing(error: type[StorageError]) -> Storage:
    return FlakyStorage(MemoryStorage(), {0: Fault(error=error, for_good=True)})


async def opening(storage: Storage, path: str = "pages", **options: Any) -> StorageError:
    """Return the error that opening a writer raises."""
    with pytest.raises(StorageError) as caught:
        async with asyncrec.open_sharded_writer(path, storage=storage, **options):
            pass
    return caught.value


@pytest.mark.parametrize("options", [{}, {"num_shards": 2}, {"mode": "replace"}], ids=str)
@pytest.mark.parametrize("error", [StoragePermissionError, ObjectNotFoundError])
async def test_failed_opening_raises_own_error_without_warning(
    error: type[StorageError], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        raised = await opening(refusing(error), **options)
    assert type(raised) is error
    assert not caplog.records


async def test_unreachable_store_error_says_no_writer_was_opened() -> None:
    raised = await opening(refusing(TransientStorageError))
    assert type(raised) is TransientStorageError
    assert "pages: no writer was opened and nothing was written" in raised.__notes__


async def test_silent_store_is_reported_as_not_answering() -> None:
    raised = await opening(FlakyStorage(MemoryStorage(), {0: Fault("hang", for_good=True)}))
    assert type(raised) is TransientStorageError
    assert "did not answer" in str(raised)


class Down(_Around):
    """A store in which each request fails, after as many retries as the current task's retry settings allow."""

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        async def fail() -> T:
            raise TransientStorageError("refused")

        return await retrying(fail, what=operation)


async def test_opening_waits_once_for_unavailable_store() -> None:
    begun = anyio.current_time()
    assert not isinstance(await opening(Down(MemoryStorage())), UnsettledError)
    assert anyio.current_time() - begun < 60 + 2 + 2 + 1


@pytest.mark.parametrize("error", [ObjectNotFoundError, TransientStorageError])
async def test_spool_of_failed_opening_is_reusable_for_another_path(tmp_path: Path, error: type[StorageError]) -> None:
    await opening(refusing(error), "mistyped", spool=tmp_path)
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path) as writer:
        await writer.write(b"a record")
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 1
    if error is ObjectNotFoundError:
        assert not list(tmp_path.glob(".mistyped*"))
