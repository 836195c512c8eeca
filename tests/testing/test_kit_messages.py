"""The kit's messages say what was expected and what happened, so that a plugin's author need not read the kit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from asyncrec.storage import MemoryStorage, ObjectInfo, Storage
from asyncrec.testing import FormatConformance, StorageConformance

pytestmark = pytest.mark.anyio

SUITE = """
from contextlib import asynccontextmanager

from asyncrec.storage import MemoryStorage
from asyncrec.testing import StorageConformance


class TestNowhere(StorageConformance):
    @asynccontextmanager
    async def open_storage(self):
        storage = MemoryStorage()
        storage.flush_level = "sometimes"
        yield storage
"""


class Forgetful(MemoryStorage):
    """Lists only the first half of its objects, or all of them twice or in reverse order."""

    listed = "half"

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        found = [info async for info in super().list_objects(prefix, start_after=start_after)]
        half = found[: len(found) // 2]
        for info in {"half": half, "twice": found + found, "backwards": found[::-1]}[self.listed]:
            yield info


class Empty(StorageConformance):
    __test__ = False


class Kit(Empty):
    listed = "half"

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        storage = Forgetful()
        storage.listed = self.listed
        yield storage

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await storage.put(key, data)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("half", "missing: .*'\uff5e', '\U0001f600'"),
        ("twice", "some keys were listed more than once"),
        ("backwards", "the keys are not in the order of their UTF-8 bytes"),
    ],
)
async def test_listing_failure_names_received_and_expected_keys(listed: str, said: str) -> None:
    kit = Kit()
    kit.listed = listed
    with pytest.raises(AssertionError, match=f"listing all: {said}.*: got .*, expected"):
        await kit.test_listing_order()


async def test_missing_kit_hook_is_named() -> None:
    with pytest.raises(NotImplementedError, match="Empty does not define open_storage; implement this hook of the kit"):
        await Empty().test_root()
    storage = MemoryStorage()
    with pytest.raises(NotImplementedError, match="Empty does not define raw_list"):
        await Empty().raw_list(storage)
    with pytest.raises(NotImplementedError, match="Empty does not define raw_unfinished"):
        await Empty().raw_unfinished(storage)
    with pytest.raises(NotImplementedError, match="records"):
        FormatConformance().records()


@pytest.mark.slow
def test_failed_case_shows_compared_values(tmp_path: Path) -> None:
    suite = tmp_path / "test_nowhere.py"
    suite.write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(suite)]
    done = subprocess.run([*command, "-k", "test_root and asyncio"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "assert 'sometimes' in" in done.stdout
