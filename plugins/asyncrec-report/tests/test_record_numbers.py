"""The number next to an example is the one to use with ``asyncrec cat --record``, whatever was read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from asyncrec_report import report

import asyncrec
from asyncrec import tools

pytestmark = pytest.mark.anyio


async def shown(path: str, sample: int | None) -> list[tuple[str, str]]:
    page = (await report(path, sample=sample)).html
    return re.findall(r"<code>item (\d+)</code><span>(a record|record [\d,]+)</span>", page)


@pytest.mark.parametrize("sample", [None, 200])
async def test_sampled_records_are_labelled_with_record_numbers(tmp_path: Path, sample: int | None) -> None:
    path = str(tmp_path / "set")
    async with asyncrec.open_sharded_writer(path, max_shard_records=1000) as writer:
        for number in range(5000):
            await writer.write(asyncrec.encode_example({"name": f"item {number}"}))
    found = await shown(path, sample)
    assert found
    for item, label in found:
        record = int(label.removeprefix("record ").replace(",", ""))
        data = (await tools.get_record(path, record=record)).data
        assert asyncrec.decode_example(data)["name"] == [f"item {item}".encode()]


async def test_label_omits_unknown_record_number(tmp_path: Path) -> None:
    for shard in range(3):
        records = [asyncrec.encode_example({"name": f"item {1000 * shard + n}"}) for n in range(1000)]
        await asyncrec.write_records(tmp_path / f"{shard}.tfrecord", records)
    found = await shown(str(tmp_path), 60)
    assert {label for _, label in found} > {"a record"}
    assert all(label == "a record" or label == f"record {int(item):,}" for item, label in found)
