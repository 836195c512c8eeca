"""Copying between clouds, run as by a user, from one store on this machine to another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from fake_gcs import FakeGcs

import asyncrec

COPY = Path(__file__).parents[2] / "examples" / "copy_between_clouds.py"
PATIENCE = 60
RECORDS = [b"%d " % n * 1_000 for n in range(300)]


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    with FakeGcs().serving() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


def copy(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COPY), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


async def write(dataset: str) -> None:
    async with asyncrec.open_sharded_writer(dataset, max_shard_records=100, compression="GZIP") as writer:
        for number, record in enumerate(RECORDS):
            await writer.write(record, key=str(number))


async def read(dataset: str) -> list[bytes]:
    paths = await asyncrec.list_shards(await asyncrec.read_manifest(dataset))
    return [record for path in paths for record in await asyncrec.read_records(path)]


def shards(gcs: FakeGcs) -> dict[str, int]:
    """Return the version of each shard and of each object of the manifest."""
    return {key: found.generation for (_, key), found in gcs.objects.items() if "/_manifest/" in key or "/_" not in key}


async def look_up(dataset: str, key: str) -> bytes:
    async with asyncrec.open_dataset(dataset) as opened:
        return await opened.get_by_key(key)


@pytest.mark.slow
def test_copy_from_s3_to_gcs_is_complete_and_repeatable(s3: dict[str, str], gcs: FakeGcs) -> None:
    source, target = "s3://crawl/2026/pages", "gs://archive/2026/pages"
    anyio.run(write, source)
    environment = s3 | {"STORAGE_EMULATOR_HOST": gcs.url}

    first = copy(environment, source, target)
    assert (first.returncode, first.stderr) == (0, "")
    assert "300 records in 3 shards, read back" in first.stdout
    assert anyio.run(read, target) == anyio.run(read, source)
    assert sorted(anyio.run(read, target)) == sorted(RECORDS)
    assert anyio.run(look_up, target, "217") == RECORDS[217], "its keys and indexes went with it"
    there = shards(gcs)

    again = copy(environment, source, target)
    assert (again.returncode, again.stderr) == (0, "")
    assert shards(gcs) == there, "what is there is left alone"


@pytest.mark.slow
def test_copy_of_damaged_shard_fails_without_creating_data_set(s3: dict[str, str], tmp_path: Path) -> None:
    anyio.run(write, str(tmp_path / "pages"))
    shard = next(tmp_path.glob("pages-*.tfrecord*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)

    done = copy(s3, str(tmp_path / "pages"), "s3://archive/damaged/pages")
    assert done.returncode == 1
    assert shard.name in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(asyncrec.ObjectNotFoundError):
        anyio.run(read, "s3://archive/damaged/pages")


@pytest.mark.slow
def test_target_store_can_be_selected_by_endpoint(s3: dict[str, str], tmp_path: Path) -> None:
    anyio.run(write, str(tmp_path / "pages"))
    elsewhere = {name: value for name, value in s3.items() if name != "AWS_ENDPOINT_URL_S3"}
    endpoint = s3["AWS_ENDPOINT_URL_S3"]
    done = copy(elsewhere, str(tmp_path / "pages"), "s3://archive/named/pages", "--target-endpoint", endpoint)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(anyio.run(read, "s3://archive/named/pages")) == sorted(RECORDS)


def test_missing_source_is_reported_without_traceback(s3: dict[str, str]) -> None:
    done = copy(s3, "s3://crawl/nowhere/pages", "s3://archive/pages")
    assert done.returncode == 1
    assert done.stderr.startswith("copy_between_clouds: s3://crawl/nowhere/pages")
    assert "Traceback" not in done.stderr
