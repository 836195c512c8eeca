"""`doctor` finds out what a store cannot do, and leaves nothing behind."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tool_data import names

from asyncrec import tools
from asyncrec.errors import StoragePermissionError, TransientStorageError
from asyncrec.storage._base import ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._retry import retrying
from asyncrec.storage.http import RangedSource
from asyncrec.testing import Fault, FlakyStorage, LaxStorage
from asyncrec.tools._doctor_report import Check, DoctorReport

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the object that is written to measure the store's speed small; the result is the same."""
    monkeypatch.setattr("asyncrec.tools._doctor._LARGE", 1 << 16)


def failed(report: tools.DoctorReport) -> Sequence[str]:
    return [check.name for check in report.checks if check.ok is False]


async def test_doctor_passes_capable_store(storage: Storage) -> None:
    report = await tools.doctor("somewhere", storage=storage)
    assert report.ok, report.to_json()
    assert len(report.checks) == (16 if isinstance(storage, LocalStorage) else 15)  # only a folder has locks
    assert await names(storage) == []


class Careless(FlakyStorage):
    """A store that overwrites despite ``exclusive``, and reads whatever version is there."""

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return super().open_sink(key)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return super().open_source(key, start=start, end=end)


async def test_doctor_detects_store_without_conditional_writes(storage: Storage) -> None:
    report = await tools.doctor("x", storage=Careless(storage))
    assert set(failed(report)) >= {"notice a change", "create exclusively", "exclusive creation, small object"}
    assert await names(storage) == []


class Lucky(MemoryStorage):
    """A store that ignores ``exclusive``, but in its first three races, the later writer happens to notice in time."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[str] = []

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        if exclusive and key not in self.created:
            self.created.append(key)
        return super().open_sink(key, exclusive=exclusive and self.created.index(key) < 3)


async def test_doctor_detects_lax_store_despite_one_lucky_race() -> None:
    report = await tools.doctor("x", storage=Lucky())
    assert "exclusive creation, small object" in failed(report)


class Unpinned(MemoryStorage):
    """A store that notices a changed object when a source is opened, but not while it is being read."""

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        storage = self

        class Source(RangedSource):
            async def look(self) -> ObjectInfo:
                return await storage.head(key)

            async def fetch(self, start: int, end: int) -> Sequence[bytes]:
                async with MemoryStorage.open_source(storage, key, start=start, end=end) as source:
                    return [await source.receive(end - start)]

        return Source(f"{self.root}/{key}", start=start, end=end, info=info)


async def test_doctor_detects_store_mixing_versions_during_reading() -> None:
    report = await tools.doctor("x", storage=Unpinned())
    assert failed(report) == ["notice a change"]


class Blocking(MemoryStorage):
    """A store whose `head` blocks the event loop."""

    async def head(self, key: str) -> ObjectInfo:
        threading.Event().wait(0.1)
        return await super().head(key)


async def test_doctor_reports_store_blocking_event_loop() -> None:
    told = {check.name: check for check in (await tools.doctor("x", storage=Blocking())).checks}["event loop"]
    assert told.ok is None
    found = re.match(r"other tasks had to wait up to (\d+) ms \(row '.*'\)", told.detail)
    assert found is not None, told.detail
    assert int(found[1]) >= 90


IN_PARTS = "exclusive creation, several parts"


async def test_doctor_reports_partial_exclusivity_without_failing() -> None:
    lax = LaxStorage(MemoryStorage(chunk_size=1 << 12))
    report = await tools.doctor("x", storage=lax)
    assert report.ok, report.to_json()
    marks = {check.name: check for check in report.checks}
    assert marks["exclusive creation, small object"].ok is True
    assert "5 races" in marks["exclusive creation, small object"].detail
    assert marks[IN_PARTS].ok is None
    assert "not supported for objects of" in marks[IN_PARTS].detail
    assert "4,096 bytes" in marks[IN_PARTS].detail
    assert await names(lax) == []


async def test_doctor_detects_store_without_exclusive_creation() -> None:
    lax = LaxStorage(MemoryStorage(chunk_size=1 << 12), honours="nothing")
    report = await tools.doctor("x", storage=lax)
    assert failed(report) == ["exclusive creation, small object"]
    assert await names(lax) == []


class Asked(LaxStorage):
    """A store that knows that its uploads in parts are not exclusive, although it passes the test race by chance."""

    asked: str = ""

    async def excludes_parts(self, key: str) -> bool:
        self.asked = key
        return False


async def test_doctor_asks_store_instead_of_trusting_one_race() -> None:
    storage = Asked(MemoryStorage(chunk_size=1 << 12), honours="all")
    report = await tools.doctor("some/folder", storage=storage)
    assert [check.ok for check in report.checks if check.name == IN_PARTS] == [None]
    assert storage.asked.startswith("some/folder/.asyncrec-doctor-")


async def test_doctor_without_write_permission_still_tries_listing(storage: Storage) -> None:
    refusing = FlakyStorage(storage, {0: Fault("error", error=StoragePermissionError)})
    report = await tools.doctor("x", storage=refusing)
    assert failed(report) == ["write"]
    assert [check.name for check in report.checks][:2] == ["write", "list"]


@pytest.mark.usefixtures("no_waiting")
async def test_doctor_retries_silent_store_only_a_few_times(storage: Storage) -> None:
    class Silent(FlakyStorage):
        """Retries each request, as a real backend does."""

        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            ask = functools.partial(super().perform, operation, key, call, short=short)
            return await retrying(ask, what=operation)

    silent = Silent(storage, {0: Fault("error", error=TransientStorageError, for_good=True)})
    report = await tools.doctor("x", storage=silent)
    assert failed(report) == ["write"]
    assert [check.name for check in report.checks] == ["write", "all else"]
    assert "gave up after 4 attempts" in report.checks[0].detail
    assert len(silent.operations) == 8, "4 to write, and 4 to take away what may have been written"


@pytest.mark.slow
@pytest.mark.usefixtures("no_waiting")
async def test_doctor_reports_any_failing_operation(storage: Storage) -> None:
    calm = FlakyStorage(storage)
    await tools.doctor("x", storage=calm)
    for k in range(0, len(calm.operations) - 8, 5):
        report = await tools.doctor(
            "x", storage=FlakyStorage(storage, {k: Fault("error", error=StoragePermissionError)})
        )
        assert report.path == "x"
        for key in await names(storage):  # leftovers that could not be deleted, as reported
            await storage.delete(key)


async def test_doctor_explains_losses_after_kill(tmp_path: Path) -> None:
    told = {check.name: check for check in (await tools.doctor("x", storage=MemoryStorage())).checks}["kill -9"]
    assert told.ok is None
    assert "which it flushes to the store" in told.detail
    assert "spool=" in told.detail
    told = {check.name: check for check in (await tools.doctor(tmp_path)).checks}["kill -9"]
    assert "loses at most what a rolling writer wrote in the last second" in told.detail


async def test_doctor_checks_file_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(report: DoctorReport) -> Check:
        return {check.name: check for check in report.checks}["locks"]

    assert told(await tools.doctor(tmp_path)).ok is True
    monkeypatch.setattr("asyncrec.tools._probes.mount_of", lambda fd: ("fuse.sshfs", "0:1"))
    assert "'fuse.sshfs', which several machines may mount" in told(await tools.doctor(tmp_path)).detail
    monkeypatch.setattr("asyncrec.tools._probes.try_flock", lambda fd: True)
    check = told(await tools.doctor(tmp_path))
    assert check.ok is False
    assert "locks do not work" in check.detail
    assert list(tmp_path.iterdir()) == []
