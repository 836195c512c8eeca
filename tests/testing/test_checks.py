"""The kit's checks work without pytest."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import anyio
import pytest

from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._base import ByteSource
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import _checks as checks
from asyncrec.testing import check_sink, check_source

pytestmark = pytest.mark.anyio


async def nothing() -> list[str]:
    return []


async def read(storage: MemoryStorage, key: str) -> bytes | None:
    try:
        return await storage.get(key)
    except ObjectNotFoundError:
        return None


async def test_correct_sink_and_source_pass() -> None:
    storage = MemoryStorage(chunk_size=100)
    await check_sink(storage.open_sink, read=partial(read, storage), unfinished=nothing)
    await storage.put("x", checks.content(2_000))
    await check_source(partial(storage.open_source, "x"), checks.content(2_000))


async def test_wrong_data_is_reported_with_first_wrong_byte() -> None:
    storage = MemoryStorage()
    await storage.put("x", checks.content(2_000))
    wrong = bytearray(checks.content(2_000))
    wrong[1_234] ^= 1
    with pytest.raises(AssertionError, match="they differ from byte 1234 on"):
        await check_source(partial(storage.open_source, "x"), bytes(wrong))


async def test_dangling_upload_is_named() -> None:
    async def dangling() -> list[str]:
        return ["upload-7"]

    storage = MemoryStorage(chunk_size=100)
    with pytest.raises(AssertionError, match="upload-7"):
        await check_sink(storage.open_sink, read=partial(read, storage), unfinished=dangling)


async def test_send_all_sends_whole_chunks_except_last() -> None:
    class Recorder(checks.ByteSink):
        chunk_size = 10
        sizes: list[int] = []  # noqa: RUF012  # one instance

        async def send(self, buffers: object) -> None:
            assert len(buffers) > 1
            self.sizes.append(sum(map(len, buffers)))
            self.chunk_size += 5

        async def flush(self, tail: object) -> int:
            return 0

    sink = Recorder()
    await checks.send_all(sink, bytes(32))
    assert sink.sizes == [10, 15, 7]


async def test_data_after_end_of_source_is_detected() -> None:
    class Undecided(ByteSource):
        answers = iter([b"a", b"", b"b"])

        async def receive(self, max_bytes: int) -> bytes:
            return next(self.answers)

    with pytest.raises(AssertionError, match="after the end"):
        await checks.receive_all(Undecided())


def test_kit_does_not_import_pytest() -> None:
    """Neither the checks nor the tools next to them import it."""
    code = """
import sys
import asyncrec.testing as kit
kit.check_sink, kit.check_source, kit.FlakyStorage, kit.SlowStorage, kit.virtual_backend, kit.golden, kit.Fault
kit.cancel_at_every_checkpoint
assert "pytest" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_kit_resolves_public_names_only() -> None:
    import asyncrec.testing as kit

    assert [name for name in kit.__all__ if not hasattr(kit, name)] == []
    assert set(kit.__all__) <= set(dir(kit))
    with pytest.raises(AttributeError, match="no attribute 'chek_sink'"):
        kit.chek_sink  # noqa: B018  # the attribute access is what is tested


def test_checks_run_on_any_event_loop() -> None:
    for backend in ("asyncio", "trio"):
        storage = MemoryStorage(chunk_size=100)
        anyio.run(
            partial(check_sink, storage.open_sink, read=partial(read, storage), unfinished=nothing), backend=backend
        )
