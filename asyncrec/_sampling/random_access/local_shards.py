"""`LocalShards` reads records of uncompressed shards in a local folder. It keeps the files open and starts no tasks.

It returns records only if they are complete, intact and at the offset in the index, and otherwise `None`. The caller
then reads the records with `RangeReader`, which finds the problem and raises the error. This keeps this module fast,
and all errors are raised in one place. If a record is in the page cache, reading it takes one check of the file's name,
one read, and one check of the record's checksums.

`LocalShards` never maps files into memory. If it did, a page that is not in memory would block any thread that touches
it, even the event loop's thread, and a truncated file would crash the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from asyncrec._concurrency.forks import on_fork
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.frame_extractor import cut_exactly, split_ranges
from asyncrec._sampling.random_access.range_read import RangeRead
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec.errors import StorageError
from asyncrec.storage._cached import CachedStorage
from asyncrec.storage._local.disk import Place
from asyncrec.storage._local.open_files import OpenFile, OpenFiles, Range
from asyncrec.storage._local.storage import LocalStorage, local_folder
from asyncrec.storage._url import join

# The maximum number of bytes copied on the event loop at once, which takes about 40 us.
_MOST_ON_LOOP = 256 << 10
# The maximum number of records of one shard that are read on the event loop. Each takes a system call of 1.4 us.
_MOST_RECORDS_ON_LOOP = 256
# The maximum number of bytes split into records at once. Splitting more would make the event loop wait longer for the
# GIL.
_PIECE_BYTES = 1 << 20
# A range of at least this size is read into its own object. Smaller ranges are collected in one buffer.
_LARGE = 128 << 10
_PIECE_RECORDS = 4096
# The amount read in one thread hop: large enough to make the hop's cost negligible.
_HOP_BYTES = 8 << 20
_HOP_RECORDS = 8192
# The maximum number of files from which records are read together. If a hop has time left after that, it continues with
# more files.
_MOST_FILES = 16
# After this time, reading from a slow disk continues in another hop, so a cancelled call waits no longer than this.
_HOP_SECONDS = 0.05

T = TypeVar("T")


class LocalShards:
    """The uncompressed shards of a data set in a local folder, or their copies in a cache.

    The event loop and any number of threads may use it concurrently.
    """

    def __init__(self, folder: LocalStorage | CachedStorage, files: ShardFiles) -> None:
        self._folder = folder
        self._files = files
        self._disk = folder.cache.room.disk if isinstance(folder, CachedStorage) else folder.disk
        self._open = OpenFiles(self._disk)
        self._scratch = bytearray()
        # Extracting records holds the GIL, so a second thread would only make the event loop wait for both.
        self.cutting = threading.Lock()
        on_fork(self)

    def forked(self) -> None:
        """Replace the lock in a forked child, because another thread may have held it at the time of the fork."""
        self.cutting = threading.Lock()

    @classmethod
    def of(cls, files: ShardFiles) -> LocalShards | None:
        """Return the local shards of a data set, or `None` if it is neither in a local folder nor cached."""
        folder = files.folder if isinstance(files.folder, CachedStorage) else local_folder(files.folder)
        return None if folder is None else cls(folder, files)

    async def in_thread(self, func: Callable[[], T]) -> T:
        """Call ``func`` in one of the threads for the folder's disk, whose number is limited."""
        return await self._disk.in_thread(func)

    async def close(self) -> None:
        """Close the files in a thread. Afterwards, a file is open only for the duration of each read."""
        await self._disk.surely_in_thread(self._open.close)

    def record(self, shard: int, index: RecordIndex, within: int, *, waits: bool) -> bytes | None:
        """Return one record, or `None` if it must be read in another way.

        Without ``waits``, this neither opens a file nor waits for a disk or a lock, so the event loop may call it.
        """
        size, begin = index.sizes.item(within), index.offsets.item(within)
        if waits:
            file = self.opened(shard)
            data = None if file is None else _read(file, size, begin)
        else:
            file = self._open.held(shard, waits=False)
            data = None if file is None else self._cached(file, [(size, begin)], size)
        records = None if data is None else cut_exactly(data, [size - FRAME_OVERHEAD])
        return None if records is None else records[0]

    def cached(self, part: RangeRead) -> list[bytes] | None:
        """Return a few records of one shard if this requires neither opening a file nor waiting, else `None`.

        The event loop may call this method.
        """
        if len(part.within) > _MOST_RECORDS_ON_LOOP:
            return None
        file = self._open.held(part.shard, waits=False)
        if file is None:
            return None
        ranges, lengths = _ranges(part)
        data = self._cached(file, ranges, _size(lengths))
        return None if data is None else cut_exactly(data, lengths)

    def opened(self, shard: int) -> OpenFile | None:
        """Return the shard's open file, or `None` if it cannot be opened or is a different version. Blocks."""
        file = self._open.held(shard, waits=True)
        if file is not None:
            return file
        key = self._files.shards[shard].path
        try:
            if isinstance(self._folder, CachedStorage):
                info = self._files.version(shard)
                # The name of a copy contains the version of the shard.
                return None if info is None else self._open.open(shard, *self._folder.copy_of(key, info))
            place = Place(key=key, path=str(self._folder.path_of(key)), shown=join(self._folder.root, key))
            return self._open.open(shard, place, partial(self._files.pin, shard))
        except (StorageError, ValueError):  # ValueError: the key is not a valid file name
            return None

    def _cached(self, file: OpenFile, ranges: list[Range], size: int) -> bytes | None:
        if size > _MOST_ON_LOOP:
            return None
        if not self._scratch:
            self._scratch = bytearray(_MOST_ON_LOOP)
        with memoryview(self._scratch) as view:
            return None if file.cached(ranges, view) else bytes(view[:size])


class LocalReads:
    """Reads many records of local shards, in steps that block.

    Each step runs in a worker thread, unless the caller may block.

    Args:
        found: the list in which the records are stored. The records of a part begin at the part's ``first``.

    Attributes:
        refused: the parts that must be read in another way, because a file or a record is not as expected.
    """

    def __init__(self, shards: LocalShards, parts: Iterable[RangeRead], found: list[bytes | None]) -> None:
        self._shards = shards
        self._pieces = self._made(parts)
        self._hop: deque[_Piece] = deque()
        self._more = True
        self._found = found
        self._scratch = bytearray()
        self.refused: list[RangeRead] = []

    def step(self) -> bool:
        """Read the next records, and return whether there are more. Blocks."""
        deadline = time.perf_counter() + _HOP_SECONDS
        enough = bool(self._hop) or self._begin()
        while self._hop:
            piece = self._hop[0]
            if not piece.complete(deadline):
                return True
            self._hop.popleft()
            records = piece.records(self._shards.cutting)
            if records is None:
                self.refused.append(piece.part)
            else:
                self._found[piece.part.first : piece.part.first + len(records)] = records
            if not (self._hop or enough) and time.perf_counter() < deadline:
                enough = self._begin()
        return self._more

    def _begin(self) -> bool:
        """Begin the next pieces: read the bytes that are in memory, and request the other bytes from the disk.

        Return `False` if no more pieces were begun only because of the number of files, so the hop can read more.
        """
        records = size = gathered = 0
        shards = set[int]()
        for piece in self._pieces:
            self._hop.append(piece)
            shards.add(piece.part.shard)
            records += len(piece.part.within)
            size += piece.size
            gathered += 0 if piece.is_large else piece.size
            enough = size >= _HOP_BYTES or records >= _HOP_RECORDS
            if enough or len(shards) >= _MOST_FILES:
                break
        else:
            enough, self._more = True, False
        if gathered > len(self._scratch):
            self._scratch = bytearray(gathered)
        with memoryview(self._scratch) as view:
            at = 0
            for piece in self._hop:
                at = piece.gather(view, at)
        for piece in self._hop:
            piece.expect()
        return enough

    def _made(self, parts: Iterable[RangeRead]) -> Iterator[_Piece]:
        for part in parts:
            file = self._shards.opened(part.shard)
            if file is None:
                self.refused.append(part)
            else:
                yield from _pieces(file, part)


class _Piece:
    """Records of one shard that are extracted from their bytes together."""

    __slots__ = ("_file", "_lengths", "_missing", "_ranges", "_short", "_view", "is_large", "part", "size")

    def __init__(self, file: OpenFile, part: RangeRead) -> None:
        self.part = part
        self._file = file
        self._ranges, self._lengths = _ranges(part)
        self.size = _size(self._lengths)
        self.is_large = len(self._ranges) == 1 and self.size >= _LARGE
        self._view: memoryview | None = None
        self._missing: list[tuple[int, int, int]] = []
        self._short = False

    def gather(self, view: memoryview, at: int) -> int:
        """Copy the bytes that are in memory into ``view``, from ``at`` on. Return the end of this piece in ``view``."""
        if self.is_large:
            return at
        self._view = view[at : at + self.size]
        self._missing = self._file.cached(self._ranges, self._view)
        return at + self.size

    def expect(self) -> None:
        """Ask the system to load the bytes that are not in memory, without reading them."""
        self._file.expect((size, position) for size, position, _ in self._missing)

    def complete(self, deadline: float) -> bool:
        """Read the bytes that were not in memory. Return `False` if some bytes are still missing at the deadline."""
        while self._view is not None and self._missing and not self._short:
            size, position, at = self._missing.pop()
            data = _read(self._file, size, position)
            if data is None:
                self._short = True
            else:
                self._view[at : at + size] = data
            if time.perf_counter() > deadline:
                return not self._missing
        return True

    def records(self, cutting: threading.Lock) -> list[bytes] | None:
        """Return the records, or `None` if any is damaged or missing. The lock ``cutting`` is held meanwhile."""
        if self._view is None:
            data = _read(self._file, *self._ranges[0])
        else:
            with self._view as view:
                data = None if self._short else bytes(view)
        if data is None:
            return None
        with cutting:
            return cut_exactly(data, self._lengths)


def _pieces(file: OpenFile, part: RangeRead) -> Iterator[_Piece]:
    """Split a part into pieces small enough to be split into records in one step."""
    count = len(part.within)
    if count <= _PIECE_RECORDS:
        whole = _Piece(file, part)
        if whole.size <= _PIECE_BYTES:
            yield whole
            return
    sizes = part.index.sizes[part.within]
    for first, last in split_ranges(np.cumsum(sizes) - sizes, most=_PIECE_BYTES, count=_PIECE_RECORDS):
        yield _Piece(file, RangeRead(part.shard, part.index, part.within[first:last], part.first + first))


def _ranges(part: RangeRead) -> tuple[list[Range], list[int]]:
    """Return the ranges of a part's records, with adjacent ranges merged, and the lengths of the records."""
    begins, sizes = part.index.offsets[part.within].tolist(), part.index.sizes[part.within].tolist()
    ranges: list[Range] = []
    begin = end = begins[0]
    for position, size in zip(begins, sizes, strict=True):
        if position != end:
            ranges.append((end - begin, begin))
            begin = position
        end = position + size
    ranges.append((end - begin, begin))
    return ranges, [size - FRAME_OVERHEAD for size in sizes]


def _size(lengths: list[int]) -> int:
    """Return the total size of the frames of records with these lengths."""
    return sum(lengths) + FRAME_OVERHEAD * len(lengths)


def _read(file: OpenFile, size: int, position: int) -> bytes | None:
    """Return the bytes of a range, or `None` if they cannot all be read. Blocks."""
    try:
        data = file.read(size, position)
    except OSError:
        return None
    return data if len(data) == size else None
