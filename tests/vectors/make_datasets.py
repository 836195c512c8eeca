"""Makes the data sets of `tests/shards/test_golden.py`, in a new folder: its only argument.

``expected.json`` says what they hold, for readers of other makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import anyio

import asyncrec
from asyncrec import pages, tools

_SCHEMA = {"id": asyncrec.FixedLen((), "int64"), "url": asyncrec.FixedLen((), "bytes")}


async def _write(path: Path, records: dict[str, bytes], *, dies: bool = False, **options: object) -> None:
    async with asyncrec.open_sharded_writer(path, **options) as writer:  # type: ignore[arg-type]
        for key, record in records.items():
            await writer.write(record, key=key)
        if dies:
            await writer.flush()
            while writer.stats().committed_records < len(records) // 10 * 10:  # noqa: ASYNC110  # no event tells
                await anyio.sleep(0.01)
            os._exit(0)


def _examples(numbers: range, key: str = "") -> dict[str, bytes]:
    examples = {}
    for number in numbers:
        url = f"https://example.org/{number}"
        examples[f"{key}{number}"] = asyncrec.encode_example({"id": number, "url": url})
    return examples


def _in_child(path: Path, records: dict[str, bytes], **options: object) -> None:
    """Write in a process that dies behind a flush."""
    child = os.fork()
    if child == 0:
        anyio.run(lambda: _write(path, records, dies=True, **options))
    os.waitpid(child, 0)


def _forget_machine(header: Path) -> None:
    pid, line = header.read_text().splitlines()[:2]
    line = re.sub(r'"url":"[^"]*"', '"url":"dead"', line)
    line = re.sub(r'"host":"[^"]*"', '"host":"host"', line)
    header.write_text(f"{pid}\n{line}\n")


async def _make(folder: Path) -> None:
    await _write(
        folder / "rolling",
        _examples(range(25), "https://example.org/"),
        writer_id="w1",
        compression="GZIP",
        max_shard_records=10,
        schema=_SCHEMA,
        metadata={"made": "golden"},
        recover=False,
    )
    for writer, count in (("w3", 10), ("w4", 12)):
        mode = {"mode": "replace"} if writer == "w4" else {}
        await _write(folder / "fixed", _examples(range(count)), writer_id=writer, num_shards=2, **mode)
    async with asyncrec.open_sharded_writer(
        folder / "seen", writer_id="w6", max_shard_records=5, schema=pages.PAGE, key_feature="url", seen="digest"
    ) as writer:
        for number in range(12):
            url, body = f"https://example.org/{number}", b"<p>body %d</p>" % (number % 4)
            await writer.write(pages.page(url, body, date=f"2026-11-28T00:00:{number:02}Z"))
    await tools.compact(folder / "seen", manifest_only=True)
    await tools.compact(folder / "rolling", latest=True, manifest_only=True)
    await tools.compact(folder / "fixed", manifest_only=True)
    # As compaction does when a minute has gone by: the last of each log stays.
    logs: dict[str, Path] = {}
    for covered in sorted(folder.glob("_manifest/*/[!_]*-0*.jsonl")):
        if (before := logs.get(log := covered.as_posix().rpartition("-")[0])) is not None:
            before.unlink()
        logs[log] = covered
    async with (
        asyncrec.open_dataset(folder / "rolling") as dataset,
        dataset.shuffled(seed=1) as stream,
    ):
        for _ in range(5):
            await anext(stream)
        (folder / "shuffled.state.json").write_text(json.dumps(stream.state_dict()))


async def _expected(folder: Path) -> None:
    expected = {}
    for name in ("fixed", "rolling", "seen"):
        manifest = await asyncrec.read_manifest(folder / name)
        records = []
        for shard in manifest.shards:
            assert shard.keys is not None
            keys = (folder / shard.keys.path).read_bytes()
            width = len(keys) // shard.records  # 32 if each key's digest is followed by a content digest
            for number, record in enumerate(await asyncrec.read_records(folder / shard.path)):
                told = {"shard": shard.path, "key": keys[width * number : width * number + 16].hex()}
                records.append({**told, "sha256": hashlib.sha256(record).hexdigest()})
        said = {"id": manifest.id, "schema": manifest.schema, "metadata": manifest.metadata}
        expected[name] = {**said, "records": records}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir()
    # It died between two commits; what it had begun of the second is taken away.
    _in_child(folder / "rolling", _examples(range(100, 111), "u"), writer_id="w2", max_shard_records=10)
    for left in folder.rglob(".*"):
        left.unlink()
    anyio.run(_make, folder)
    anyio.run(_expected, folder)
    _in_child(folder / "dead", {str(number): b"record %d" % number for number in range(7)}, writer_id="w5")
    _forget_machine(folder / ".dead.w5.partial")


if __name__ == "__main__":
    main()
