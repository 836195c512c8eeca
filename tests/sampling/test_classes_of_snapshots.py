"""The classes stored for one snapshot are not used for another one with the same number of records."""

from __future__ import annotations

import pytest

import asyncrec
from asyncrec.storage import MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

COUNT = 12


async def test_snapshots_keep_separate_classes() -> None:
    storage = MemoryStorage()
    for turned in (0, 1):
        label = {b"%d" % number: (number // 2 + turned * number) % 3 for number in range(COUNT)}
        async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace") as writer:
            for text, value in label.items():
                await writer.write(asyncrec.encode_example({"label": value, "text": text}))
        schema = asyncrec.Schema({"label": asyncrec.FixedLen((), "int64"), "text": asyncrec.FixedLen((), "bytes")})
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            async with asyncrec.ClassBalancedSampler(dataset, 2, 2, class_feature="label", seed=1) as sampler:
                for _ in range(4):
                    batch = [schema.decode(record) for record in await anext(sampler)]
                    found = [label[bytes(each["text"])] for each in batch]
                    assert found[::2] == found[1::2], "two of each class stand side by side"
                    assert found == [int(each["label"]) for each in batch]
