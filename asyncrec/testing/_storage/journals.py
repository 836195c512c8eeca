"""Cases of journals, which writers keep if objects are the files of a folder. Flushed records survive the writer."""

from __future__ import annotations

import os

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.reader import read_records
from asyncrec._shards.manifest.snapshot import read_manifest
from asyncrec._shards.recovery.recover import recover
from asyncrec._shards.writing.open import open_sharded_writer
from asyncrec.storage._base import LocalFiles, Storage
from asyncrec.testing._kit import nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, keys_of

_RECORDS = [b"one", b"two", b"three"]


class JournalCases(StorageHooks):
    """The cases for a storage that offers `LocalFiles`."""

    async def test_objects_are_files_of_the_folder(self) -> None:
        """A key's file has the object's bytes. A file linked under a key is its object; a partial file is no object."""
        async with self.open_storage() as storage:
            folder = _folder_of(storage)
            await storage.put("journals/written", b"by the storage")
            written = await in_thread(_read, os.path.join(folder, "journals", "written"))
            assert written == b"by the storage", f"the file of the key has {written!r}"
            await in_thread(_put, os.path.join(folder, "journals", ".begun.x.partial"), b"unfinished")
            listed = await keys_of(storage, "journals/")
            assert listed == ["journals/written"], f"{listed} were listed, but .begun.x.partial is not an object"
            begun, linked = (os.path.join(folder, "journals", name) for name in (".begun.x.partial", "linked"))
            await in_thread(os.link, begun, linked)
            await in_thread(os.unlink, begun)
            assert await storage.get("journals/linked") == b"unfinished", (
                "the object of a key must be the file that is linked to it"
            )
            assert await keys_of(storage, "journals/") == ["journals/linked", "journals/written"]

    async def test_what_was_flushed_survives_its_writer(self) -> None:
        """If a rolling writer fails, its flushed records stay in journals, and `asyncrec.recover` commits them."""
        async with self.open_storage() as storage:
            _folder_of(storage)
            try:
                async with open_sharded_writer("journals/pages", storage=storage, on_error="discard") as writer:
                    for record in _RECORDS:
                        await writer.write(record, key=record)
                    level = await writer.flush()
                    assert level == "spooled", f"a flush reached the level {level!r} instead of spooled"
                    raise _Dies
            except _Dies:
                pass
            recovery = await recover("journals/pages", storage=storage)
            assert recovery.records == len(_RECORDS), f"{recovery.records} of {len(_RECORDS)} records were recovered"
            manifest = await read_manifest("journals/pages", storage=storage)
            found = [
                each
                for shard in manifest.shards
                for each in await read_records(f"journals/{shard.path}", storage=storage)
            ]
            assert found == _RECORDS, f"the recovered records are {found}"
            assert await recover("journals/pages", storage=storage) == type(recovery)(), (
                "unfinished files were left behind"
            )


class _Dies(Exception):
    pass


def _folder_of(storage: Storage) -> str:
    if not isinstance(storage, LocalFiles):
        nothing_to_try("the storage does not implement LocalFiles, so writers keep journals only in a spool")
    return storage.files_folder()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _put(path: str, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
