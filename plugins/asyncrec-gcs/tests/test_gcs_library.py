"""Shows with the installed release which calls of gcloud-aio-storage are used, and why the others are not.

If a test of one of its faults fails, the library has fixed that fault: then check which of our code it can replace
(docs/design/clients-of-stores.md).
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from typing import Any

import aiohttp
import anyio
import pytest
from fake_gcs import UNIT, FakeGcs, Fault
from gcloud.aio.auth import Token
from gcloud.aio.storage import Storage as Library
from gcloud.aio.storage import storage as library_module
from opening import open_quick

from asyncrec import ObjectNotFoundError
from asyncrec.errors import ObjectChangedError

CALLS = ("download_metadata", "delete", "list_objects")
OTHERS = ("upload", "download", "download_stream", "copy", "compose", "patch_metadata")


class Fixed(Token):
    def __init__(self) -> None:
        self.access_token, self.acquiring = "ya29.secret", None

    async def get(self) -> str | None:
        return self.access_token


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of each of the library's methods."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Any:
        call = getattr(Library, name)

        async def counted(self: Library, *args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return await call(self, *args, **kwargs)

        return counted

    for name in (*CALLS, *OTHERS):
        monkeypatch.setattr(Library, name, counting(name))
    return counts


# -- calls that are used ----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_metadata_listings_and_deletions_use_library_calls(gcs: FakeGcs, called: Counter[str]) -> None:
    async with open_quick() as storage:
        await storage.put("a", b"1" * UNIT)
        called.clear()
        assert (await storage.head("a")).size == UNIT
        async with storage.open_source("a") as source:
            assert await source.receive(10) == b"1" * 10
        assert [info.key async for info in storage.list_objects()] == ["a"]
        await storage.delete("a")
        await storage.delete("a")  # a missing object is not an error
        with pytest.raises(ObjectNotFoundError):
            await storage.head("a")
    assert called == {"download_metadata": 2, "list_objects": 1, "delete": 2}


@pytest.mark.anyio
async def test_library_calls_reject_redirects_and_limit_error_text(gcs: FakeGcs) -> None:
    """The plugin's own requests do the same. The library would follow redirects and read errors of any length."""
    async with open_quick(attempts=1) as storage:
        gcs.page = 307, ""
        gcs.plan = lambda kind, n: Fault("answer")
        with pytest.raises(OSError, match="HTTP 307"):
            await storage.head("a")
        gcs.page = 500, "x" * (1 << 20)
        with pytest.raises(OSError, match="HTTP 500") as caught:
            await storage.delete("a")
        assert len(str(caught.value)) < 1_000


# -- why other calls are not used -------------------------------------------------------------------------------------


def run_with_library(gcs: FakeGcs, use: Any) -> Any:
    async def run() -> Any:
        async with aiohttp.ClientSession() as session:
            library = Library(session=session, token=Fixed(), api_root=gcs.url, api_is_dev=False)  # type: ignore[arg-type]
            return await use(library)

    return asyncio.run(run())


def test_library_upload_reports_success_for_missing_object(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 503, it resends all data with ``bytes */*``, a query for the stored size, and accepts a 308."""

    async def no_time(seconds: float) -> None:
        return None

    monkeypatch.setattr(library_module, "sleep", no_time)
    gcs.page = 308, ""
    gcs.plan = lambda kind, n: {"last": Fault("status", 503), "query": Fault("answer")}.get(kind)

    async def upload(library: Library) -> Any:
        return await library.upload("bucket", "lost", b"x" * 6_000_000, parameters={"name": "lost"})

    run_with_library(gcs, upload)  # and raises nothing
    assert gcs.log == ["open", "last", "query"]
    assert not gcs.objects

    gcs.reset()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
    gcs.plan = lambda kind, n: Fault("status", 503) if kind == "last" and gcs.log.count("last") == 1 else None

    async def ours() -> None:
        async with open_quick() as storage:
            await storage.put("kept", b"x" * 6_000_000)

    anyio.run(ours)
    assert {name: len(each.data) for (_, name), each in gcs.objects.items()} == {"kept": 6_000_000}


def test_library_upload_needs_length_and_accepts_no_stream() -> None:
    assert "chunk_size" not in inspect.signature(Library.upload).parameters
    with pytest.raises(TypeError, match="unsupported upload type"):
        Library._preprocess_data(iter([b"part"]))


def test_library_download_mixes_object_versions(gcs: FakeGcs) -> None:
    for call in (Library.download, Library.download_stream):
        assert "params" not in inspect.signature(call).parameters
    gcs.put("a", b"old!" * 2)

    async def download(library: Library) -> bytes:
        first = await library.download("bucket", "a", headers={"Range": "bytes=0-3", "Accept-Encoding": "gzip"})
        gcs.put("a", b"new!" * 2)
        return first + await library.download("bucket", "a", headers={"Range": "bytes=4-7", "Accept-Encoding": "gzip"})

    assert run_with_library(gcs, download) == b"old!new!"

    gcs.put("a", b"old!" * 2)

    async def ours() -> None:
        async with open_quick() as storage, storage.open_source("a") as source:
            assert await source.receive(4) == b"old!"
            gcs.put("a", b"new!" * 2)
            assert await source.receive(4) == b"old!"  # from the response that had begun
            async with storage.open_source("a", start=4, info=source.info) as rest:
                with pytest.raises(ObjectChangedError):
                    await rest.receive(4)

    anyio.run(ours)


def test_library_errors_contain_the_token(gcs: FakeGcs) -> None:
    """Therefore the plugin sends the library's requests itself, and makes errors only from the response."""
    gcs.token = "another"

    async def look(library: Library) -> None:
        await library.download_metadata("bucket", "a")

    with pytest.raises(aiohttp.ClientResponseError) as caught:
        run_with_library(gcs, look)
    assert "ya29.secret" in str(caught.value.request_info.headers)
