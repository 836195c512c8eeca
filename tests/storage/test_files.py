"""`open_file`, `directory_check` and `make_valid_tf_name`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import anyio
import pytest

from asyncrec.errors import ObjectNotFoundError, StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage import _registry as registry
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._files import directory_check, make_valid_tf_name, open_file
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._registry import register_writer_factory

pytestmark = pytest.mark.anyio


async def test_file_is_published_on_clean_exit(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.bin"
    async with open_file(path) as file:
        await file.write(b"abc")
        buffer = bytearray(b"def")
        await file.write(buffer)
        buffer[:] = b"xxx"
        await file.write(memoryview(b"ghi")[1:])
        assert await file.flush() == 8
        assert not path.exists()
    assert path.read_bytes() == b"abcdefhi"
    with pytest.raises(anyio.ClosedResourceError):
        await file.write(b"more")
    with pytest.raises(anyio.ClosedResourceError):
        await file.flush()


async def test_exception_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with open_file(tmp_path / "x.bin") as file:
            await file.write(bytes(3 << 20))
            raise KeyError
    assert list(tmp_path.iterdir()) == []


async def test_text_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        async with open_file(tmp_path / "x.bin") as file:
            await file.write("text")  # type: ignore[arg-type]  # deliberately wrong


async def test_storage_options_reach_backend() -> None:
    async with open_file("memory://files/x", storage_options={"chunk_size": 3}) as file:
        await file.write(b"abcdefgh")
    assert await MemoryStorage("files").get("x") == b"abcdefgh"


@pytest.mark.parametrize("path", ["a", "a/b/c", "a/b/", "."])
async def test_directory_check_creates_local_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    await directory_check(path)
    await directory_check(f"file://{tmp_path}/{path}")
    await directory_check(tmp_path / path)
    assert (tmp_path / path).is_dir()


async def test_file_in_place_of_folder_is_named_in_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StorageError, match=r"a/b: Not a directory"):
        await directory_check(tmp_path / "a" / "b")
    with pytest.raises(StorageError, match=r"/a: Not a directory"):
        await directory_check(tmp_path / "a")


class Asked(MemoryStorage):
    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error
        self.keys: list[str] = []

    async def head(self, key: str) -> ObjectInfo:
        self.keys.append(key)
        if self.error is not None:
            raise self.error
        return await super().head(key)

    def list_objects(self, prefix: str = "", *, start_after: str = ""):  # type: ignore[no-untyped-def, override]  # never
        raise AssertionError("listing is a right of its own")

    def factory(self, url: str) -> AbstractAsyncContextManager[Storage]:
        return nullcontext(self)


@pytest.mark.parametrize("error", [None, ObjectNotFoundError("no"), StoragePermissionError("403, as S3 says")])
async def test_directory_check_requests_missing_key_from_store(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(registry, "registered", {})
    asked = Asked(error)
    register_writer_factory("asked", StorageFactory("asked", ("asked",), asked.factory))
    await directory_check("asked://bucket/some/folder/")
    await directory_check("asked://bucket")
    assert asked.keys[0].startswith("some/folder/.asyncrec-")
    assert asked.keys[1].startswith(".asyncrec-")


async def test_directory_check_raises_for_unreachable_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registered", {})
    asked = Asked(TransientStorageError("no route"))
    register_writer_factory("asked", StorageFactory("asked", ("asked",), asked.factory))
    with pytest.raises(TransientStorageError):
        await directory_check("asked://bucket/x")


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("", "."),
        ("_x", "._x"),
        ("x", "x"),
        (".x", ".x"),
        ("a b", "a_b"),
        ("a  b é c", "a_b_c"),
        ("/a/b", "./a/b"),
        ("-1", ".-1"),
        ("loss/train_1.0-x", "loss/train_1.0-x"),
        ("a\\b", "a_b"),
        ("x!", "x"),
        ("é", "."),
    ],
)
def test_make_valid_tf_name_replaces_invalid_characters(name: str, valid: str) -> None:
    assert make_valid_tf_name(name) == valid
