"""Third-party file writers registered with `register_writer_factory`."""

from __future__ import annotations

import io
import logging
import threading
from typing import Any

import anyio
import pytest

from asyncrec.errors import StorageError
from asyncrec.storage import _registry as registry
from asyncrec.storage._files import directory_check, open_file
from asyncrec.storage._registry import located, open_storage, register_writer_factory

pytestmark = pytest.mark.anyio


class File:
    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.threads: set[int] = set()

    def write(self, data: bytes) -> None:
        assert type(data) is bytes
        self.threads.add(threading.get_ident())
        self.log.append(data)

    def close(self) -> None:
        self.log.append("close")


class Abortable(File):
    def abort(self) -> None:
        self.log.append("abort")


class Discardable(File):
    def discard(self) -> None:
        self.log.append("discard")


class Flushable(File):
    def flush(self) -> None:
        self.log.append("flush")


class AsyncFile:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    async def write(self, data: bytes) -> int:
        await anyio.lowlevel.checkpoint()
        self.log.append(data)
        return len(data)

    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.log.append("close")

    async def abort(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.log.append("abort")


class Factory:
    def __init__(self, file: type[Any] = File, error: Exception | None = None) -> None:
        self.log: list[Any] = []
        self.file = file
        self.error = error

    def open(self, path: str) -> Any:
        if self.error is not None:
            raise self.error
        self.log.append(f"open {path}")
        return self.file(self.log)

    def directory_check(self, path: str) -> None:
        self.log.append(f"check {path}")


class AsyncFactory(Factory):
    async def open(self, path: str) -> Any:  # type: ignore[override]  # deliberately async
        await anyio.lowlevel.checkpoint()
        return super().open(path)

    async def directory_check(self, path: str) -> None:  # type: ignore[override]  # deliberately async
        await anyio.lowlevel.checkpoint()
        super().directory_check(path)


@pytest.fixture(autouse=True)
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registered", {})


PATHS = ["foo:bar.rec", "foo://bar", "foo://a/b c%20?#/x.rec", "foo:/abs/x", "foo:../x"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("factory", [Factory(File), AsyncFactory(AsyncFile)])
async def test_factory_receives_given_path_and_ordered_bytes(path: str, factory: Factory) -> None:
    factory.log.clear()
    register_writer_factory("foo", factory)
    await directory_check(path)
    async with open_file(path) as file:
        await file.write(b"one")
        await file.write(bytearray(b"two"))
    assert factory.log == [f"check {path}", f"open {path}", b"onetwo", "close"]


async def test_synchronous_file_is_used_in_worker_threads() -> None:
    factory = Factory()
    made: list[File] = []

    def make(log: list[Any]) -> File:
        made.append(File(log))
        return made[0]

    factory.file = make  # type: ignore[assignment]  # it is only called
    register_writer_factory("foo", factory)
    async with open_file("foo:x") as file:
        await file.write(b"x")
    assert threading.get_ident() not in made[0].threads


@pytest.mark.parametrize(
    ("file", "last"), [(File, "open foo:x"), (Abortable, "abort"), (Discardable, "discard"), (AsyncFile, "abort")]
)
@pytest.mark.parametrize("how", ["error", "cancellation"])
async def test_foreign_file_is_never_closed_after_exception(file: type[Any], last: str, how: str) -> None:
    factory = Factory(file)
    register_writer_factory("foo", factory)
    with anyio.CancelScope() as scope:
        with pytest.raises(KeyError) if how == "error" else anyio.CancelScope():
            async with open_file("foo:x") as opened:
                await opened.write(b"x")
                if how == "error":
                    raise KeyError
                scope.cancel()
                await anyio.lowlevel.checkpoint()
    assert factory.log[-1] == last
    assert "close" not in factory.log


async def test_failed_abort_does_not_hide_original_error(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Abortable):
        def abort(self) -> None:
            raise RuntimeError("abort failed")

    register_writer_factory("foo", Factory(Failing))
    with pytest.raises(KeyError, match="mine"):
        async with open_file("foo:x"):
            raise KeyError("mine")
    assert [(record.levelno, record.name) for record in caplog.records] == [(logging.WARNING, "asyncrec.storage")]


async def test_factory_error_reaches_caller_unchanged() -> None:
    error = KeyError("inside")
    register_writer_factory("foo", Factory(error=error))
    with pytest.raises(KeyError) as caught:
        async with open_file("foo:bar.rec"):
            raise AssertionError("not reached")
    assert caught.value is error


async def test_write_error_aborts_file_even_after_being_swallowed() -> None:
    class Full(Abortable):
        def write(self, data: bytes) -> None:
            raise RuntimeError("full")

    factory = Factory(Full)
    register_writer_factory("foo", factory)
    async with located("foo:x") as (storage, key):
        with pytest.raises(StorageError, match="not published"):
            async with storage.open_sink(key) as sink:
                with pytest.raises(RuntimeError, match="full"):
                    await sink.send([b"x"])
                with pytest.raises(StorageError, match="abandoned"):
                    await sink.send([b"x"])
        assert sink.published is None
    assert factory.log == ["open foo:x", "abort"]


async def test_flush_writes_tail_once() -> None:
    factory = Factory(Flushable)
    register_writer_factory("foo", factory)
    async with open_file("foo:x") as file:
        await file.write(b"abc")
        assert await file.flush() == 3
        await file.write(b"def")
        assert await file.flush() == 6
        assert await file.flush() == 6
        await file.write(b"g")
    written = b"".join(entry for entry in factory.log if isinstance(entry, bytes))
    assert factory.log[:3] == ["open foo:x", b"abc", "flush"]
    assert factory.log.count("flush") == 3
    assert written == b"abcdefg"


async def test_file_without_flush_method_reports_no_durable_bytes() -> None:
    register_writer_factory("foo", Factory())
    async with open_file("foo:x") as file:
        await file.write(b"abc")
        assert await file.flush() == 0


async def test_partial_write_is_continued() -> None:
    class Short(File):
        def write(self, data: bytes) -> int:  # type: ignore[override]  # like a raw file
            self.log.append(data[:2])
            return min(2, len(data))

    factory = Factory(Short)
    register_writer_factory("foo", factory)
    async with located("foo:x") as (storage, key):
        info = await storage.put(key, b"abcde")
    assert info.size == 5
    assert factory.log[1:] == [b"ab", b"cd", b"e", "close"]


async def test_registered_factory_supports_only_writing() -> None:
    register_writer_factory("foo", Factory())
    async with open_storage("foo://bucket") as storage:
        assert storage.root == "foo://bucket"
        for call in (storage.open_source, storage.list_objects, lambda key: storage.open_sink(key, exclusive=True)):
            with pytest.raises(io.UnsupportedOperation, match="foo://bucket/x"):
                call("x")  # type: ignore[operator]  # all of them accept a key
        for operation in (storage.head, storage.delete, storage.get):
            with pytest.raises(io.UnsupportedOperation, match="foo://bucket/x"):
                await operation("x")


async def test_registered_factory_rejects_options() -> None:
    register_writer_factory("foo", Factory())
    with pytest.raises(TypeError, match="region"):
        async with open_file("foo:x", storage_options={"region": 1}):
            pass
