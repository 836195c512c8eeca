"""What a sharded writer leaves on a disk that its process may not survive: the note that says whose the files are.

A folder that is written to (a local data set's own, or a spool) holds, besides shards,

    .pages.<writer>.partial                                  the note of a writer that has not ended well
    .pages-<writer>-000003.tfrecord.<writer>.partial         a shard it has open: the journal of its records
    _keys/.pages-<writer>-000003.tfrecord.keys.<writer>.partial

A journal holds the shard's final bytes as far as they have come. The note is one line with the writer's process, one of
JSON with all that recovering needs (never credentials), and a line ``acknowledged`` once a `flush` has returned. Its
writer holds a lock on it for as long as it lives.

Everything here blocks, and is for worker threads.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from asyncrec.errors import ObjectExistsError
from asyncrec.framing.compression import CompressionOptions
from asyncrec.storage.local import LocalStorage, mapped_errors
from asyncrec.storage.local_disk import is_partial
from asyncrec.storage.locks import FileLock

__all__ = ["Journal", "Note", "find_notes", "leftovers_of"]

_FORMAT = "asyncrec journal 1"
_ACKNOWLEDGED = b"acknowledged\n"
# A schema of some thousand features; a larger file of that name is no note.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a writer writes, and how.

    Attributes:
        name: of the data set.
        url: of the data set, as the user gave it, without credentials; absolute where it is local.
        key: of the data set, in the storage that the writer had.
        num_shards: `None` when they roll.
        spool: the folder is a spool: whole shards in it wait to be uploaded.
    """

    name: str
    writer: str
    url: str
    key: str
    num_shards: int | None
    replace: bool
    spool: bool
    index: bool
    compression: CompressionOptions
    schema: Mapping[str, Any] | None
    metadata: Mapping[str, Any]

    def encode(self) -> bytes:
        content = {"format": _FORMAT, **asdict(self)}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Note | None:
        """`None` when it is none, or the writer died before it was whole: then it had opened nothing yet."""
        try:
            content = json.loads(line)
            if content.pop("format") != _FORMAT:
                return None
            return cls(**{**content, "compression": CompressionOptions(**content["compression"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


class Journal:
    """A note, and the lock on it: a live writer's (`begin`), or a dead one's (`claim`).

    Attributes:
        acknowledged: a flush has returned: records have been promised to survive.
    """

    def __init__(self, folder: LocalStorage, note: Note, lock: FileLock, *, acknowledged: bool) -> None:
        self.folder = folder
        self.note = note
        self.acknowledged = acknowledged
        self._lock = lock

    @classmethod
    def begin(cls, folder: LocalStorage, note: Note) -> Journal:
        """Write the note, durably.

        Raises:
            ObjectExistsError: a writer of this id left one.
            StorageError: the disk.
        """
        path = _path(folder, note)
        with mapped_errors("writing", path):
            system = folder.disk.system
            folder.disk.make_folder(folder.folder)
            if os.path.exists(path):
                raise ObjectExistsError(
                    f"{path}: a writer with the id {note.writer} has left unfinished shards; "
                    "recover them first (asyncrec.recover), or use another writer_id"
                )
            # Locked before it has its name: nobody may take it for that of a writer which has died.
            unnamed = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
            fd = system.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            lock = FileLock(fd, path)
            try:
                _write(system, fd, b"%d\n" % os.getpid() + note.encode())
                system.fsync(fd)
                system.replace(unnamed, path)
                folder.disk.sync_folder(folder.folder)
            except BaseException:
                for each in (unnamed, path):
                    with suppress(OSError):
                        system.unlink(each)
                lock.release()
                raise
        return cls(folder, note, lock, acknowledged=False)

    @classmethod
    def claim(cls, folder: LocalStorage, path: str) -> Journal | None:
        """The note of a writer that has died; `None` when it was removed meanwhile, or is none.

        Raises:
            StorageError: the writer lives.
        """
        with mapped_errors("reading", path):
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            lock = FileLock(fd, path)
            if not os.fstat(fd).st_nlink:
                lock.release()
                return None
            _, line, rest = _parts(fd)
        note = Note.decode(line)
        if note is None:
            lock.release()
            return None
        return cls(folder, note, lock, acknowledged=rest.startswith(_ACKNOWLEDGED))

    def acknowledge(self) -> None:
        """Records are about to be promised to survive. Durable when it returns; once is enough."""
        if not self.acknowledged:
            with mapped_errors("writing", _path(self.folder, self.note)):
                _write(self.folder.disk.system, self._lock.fd, _ACKNOWLEDGED)
                self.folder.disk.system.fsync(self._lock.fd)
            self.acknowledged = True

    def end(self, *, keep: bool = False) -> None:
        """Let go. The note is removed, unless something of the writer is left or it is to be kept. Idempotent."""
        try:
            if self._lock.fd >= 0 and not keep and not leftovers_of(self.folder, self.note):
                self.remove()
        finally:
            self._lock.release()

    def remove(self) -> None:
        with mapped_errors("deleting", _path(self.folder, self.note)), suppress(FileNotFoundError):
            self.folder.disk.system.unlink(_path(self.folder, self.note))


def find_notes(folder: LocalStorage) -> list[tuple[str, Note]]:
    """The path and content of every note in a folder, whether its writer lives or not."""
    found = []
    try:
        names = sorted(os.listdir(folder.folder))
    except FileNotFoundError:
        return []
    for name in names:
        path = os.path.join(folder.folder, name)
        if not is_partial(name) or ".tfrecord." in name:
            continue
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError):
            continue
        try:
            note = Note.decode(_parts(fd)[1])
        finally:
            os.close(fd)
        if note is not None and _path(folder, note) == path:
            found.append((path, note))
    return found


def leftovers_of(folder: LocalStorage, note: Note) -> list[str]:
    """The names of the shards that a writer has begun in a folder and not finished, in order."""
    end = f".{note.writer}.partial"
    own = f"{note.name}-" if note.num_shards is not None else f"{note.name}-{note.writer}-"
    found = set()
    for name in os.listdir(folder.folder):
        shard = name[1 : -len(end)] if name.startswith(".") and name.endswith(end) else name
        if shard.startswith(own) and shard.endswith(".tfrecord") and (shard != name or note.spool):
            found.add(shard)
    return sorted(found)


def _path(folder: LocalStorage, note: Note) -> str:
    return os.path.join(folder.folder, f".{note.name}.{note.writer}.partial")


def _parts(fd: int) -> tuple[bytes, bytes, bytes]:
    """The process, the JSON, and what follows."""
    content = os.pread(fd, _MOST_BYTES, 0)
    process, _, rest = content.partition(b"\n")
    line, _, rest = rest.partition(b"\n")
    return process, line, rest


def _write(system: Any, fd: int, data: bytes) -> None:
    while data:
        data = data[system.write(fd, data) :]
