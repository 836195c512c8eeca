"""A body is sent in blocks, and other tasks can run after each one, however fast the network is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asyncrec_s3 import body
from asyncrec_s3.errors import scrub

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_other_tasks_run_after_each_sent_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_BLOCK", 4)
    turns = 0
    turns_at_blocks: list[int] = []
    sent = bytearray()

    class Fast:
        async def write(self, block: memoryview) -> None:
            sent.extend(block)
            turns_at_blocks.append(turns)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    writer: Any = Fast()
    await body._Payload(body.Body(b"some bytes to send")).write(writer)
    beside.cancel()
    assert bytes(sent) == b"some bytes to send"
    assert len(turns_at_blocks) == 5
    assert turns_at_blocks == sorted(set(turns_at_blocks))


async def test_scrub_visits_mutually_caused_errors_once() -> None:
    class Counted(Exception):
        counted = 0

        @property
        def args(self) -> Any:
            Counted.counted += 1
            assert Counted.counted < 10, "it has no end"
            return ()

        @args.setter
        def args(self, args: Any) -> None:
            pass

    one, other = Counted(), Counted()
    one.__cause__, other.__cause__ = other, one
    scrub(one)
    assert Counted.counted == 2
