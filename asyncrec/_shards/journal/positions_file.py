"""`PositionsFile`: the progress of sources at each flush of a shard, in a file next to the journal of its records.

A consumer reads messages from a queue, and each record has the position of its message. A journal contains only the
records. Keeping just the last position in a file is not enough: if the process died after this file had reached the
disk but before the records had, or the reverse, a message would be lost or stored twice. Therefore the file has a line
for each flush, which states the number of records written before it. Recovery uses the last line whose records are all
in the journal, and discards the records after those. They were not acknowledged, so the queue delivers them again.

    {"records": 0, "positions": {}}
    {"records": 1200, "positions": {"topic/3": [4, 917]}}

A line contains the changes since the previous line: the turn and the last position of each source. The file is created
before the first record with a position is written, and is removed when the shard is committed. In a store, it is a
one-line object that exists from the publication of the shard to its commit. Everything here except `PositionsKeeper`
blocks.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from asyncrec._records.writing.write_batch import Positions
from asyncrec._shards.manifest.names import progress_key
from asyncrec._shards.manifest.progress import progress_from_json
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._local.disk import read_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import create_file, open_own
from asyncrec.storage._local.storage import LocalStorage, mapped_errors


def positions_line(records: int, positions: Positions) -> bytes:
    """Encode one line."""
    line = {"records": records, "positions": positions}
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def parse_positions(content: bytes, records: int) -> tuple[int, Positions] | None:
    """Parse the positions of a shard that has ``records`` complete records.

    Return the number of records that the positions cover, and the positions. Return `None` if no line is complete,
    because then no record of a source was stored. Parsing stops at a line that was cut off.
    """
    found: tuple[int, Positions] | None = None
    for line in content.split(b"\n")[:-1]:
        try:
            data = json.loads(line)
            count, positions = data["records"], positions_in(data["positions"]) or {}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            break
        if type(count) is not int or count > records or (found is not None and count < found[0]):
            break
        found = count, {**(found[1] if found is not None else {}), **positions}
    return found


def positions_in(data: Any) -> Positions | None:
    """Parse the positions of sources from a JSON value, which may be null.

    Raises:
        ManifestError: the positions in the value are not valid.
        AttributeError: the value is not an object.
    """
    return None if data is None else progress_from_json(data, "positions")


def read_positions(path: str) -> bytes | None:
    """Read a positions file; return `None` if it does not exist.

    Raises:
        StorageError: the file is not a regular file of this user, or the disk failed.
    """
    try:
        fd = open_own(path, os.O_RDONLY)
    except ObjectNotFoundError:
        return None
    try:
        with mapped_errors("reading", path):
            return read_at(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


class PositionsFile:
    """The positions file of one shard, in the folder of its journal."""

    def __init__(self, folder: LocalStorage, shard: str) -> None:
        """``folder`` must be owned by the writer (`LocalStorage.owned_by`); ``shard`` must contain the maker's id."""
        self._folder = folder
        self._disk = folder.disk
        self._shard = shard
        self._path = ""  # empty until `begin`
        self._lock: FileLock | None = None
        self._end = 0

    def begin(self, records: int) -> None:
        """Create the file durably."""
        self._path = str(self._folder.partial_of(progress_key(self._shard)))
        with mapped_errors("writing", self._path):
            folder = os.path.dirname(self._path)
            self._disk.make_folder(folder)
            # On a filesystem without locks, only the file's age shows whether a process is still writing it.
            fd = create_file(self._path, system=self._disk.system)
            self._lock = FileLock(fd, self._path, needed=False)
            self.note(records, {})
            self._disk.sync_folder(folder)

    def note(self, records: int, positions: Positions) -> None:
        """Append a line durably."""
        assert self._lock is not None, "begin was called"
        with mapped_errors("writing", self._path):
            line = positions_line(records, positions)
            while line:
                written = self._disk.system.pwrite(self._lock.fd, line, self._end)
                self._end += written
                line = line[written:]
            self._disk.system.fsync(self._lock.fd)

    @property
    def is_begun(self) -> bool:
        """Whether the file exists."""
        return bool(self._path)

    def close(self) -> None:
        """Close the file and release its lock. Idempotent."""
        if self._lock is not None:
            self._lock.release()

    def remove(self) -> None:
        """Remove the file of a shard that is committed or has no files left."""
        if not self._path:
            return
        self.close()
        with mapped_errors("deleting", self._path), suppress(FileNotFoundError):
            self._disk.system.unlink(self._path)


class PositionsKeeper:
    """The `KeptPositions` of a shard on a disk, as an async interface to a `PositionsFile`."""

    def __init__(self, folder: LocalStorage, shard: str) -> None:
        self._folder = folder
        self._file = PositionsFile(folder, shard)

    async def begin(self, records: int) -> None:
        await self._folder.disk.in_thread(self._file.begin, records)

    async def note(self, records: int, positions: Positions) -> None:
        await self._folder.disk.in_thread(self._file.note, records, positions)

    async def close(self) -> None:
        """Close the file and release its lock, even if the task is cancelled."""
        if self._file.is_begun:
            await self._folder.disk.surely_in_thread(self._file.close)

    async def remove(self) -> None:
        """Remove the file, even if the task is cancelled."""
        if self._file.is_begun:
            await self._folder.disk.surely_in_thread(self._file.remove)
