"""`KnownContents` finds the record that has a given body, in the data set or among the records of the current writer.

In a Python set, each digest would take 100 bytes, so 100 million digests would take 10 GB. They are therefore kept in
tables on disk (`digest_tables`). The tables are built when the writer opens, from the runs of contents, and from the
keys files of the shards that are not in any run. Bodies that the writer stores itself stay in memory until there are
32,768 of them, and are then moved to a table.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._numpy import np
from asyncrec._records.writing.write_batch import KEY_BYTES, digest_bytes, digests_in, fitted
from asyncrec._shards.manifest.key_runs import UNFIT, OpenRun, open_runs
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec._shards.writing.digest_tables import DigestTables, Rows, TableMaker, temporary_file, write_at
from asyncrec._shards.writing.keys import KeySet
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DatasetError, ManifestError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.disk import mapped_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from asyncrec._shards.manifest.key_run import Entries
    from asyncrec.example._schema import Schema


async def load_keys(folder: Storage, name: str, before: Manifest | None) -> KeySet:
    """Load the digests of all keys in the snapshot.

    A run contains the sorted keys of many shards in one object. The runs are named by the checkpoint. Each shard that
    is not in any run takes an extra request.
    """
    keys = await in_thread(KeySet)  # in a thread, because this imports NumPy
    if before is None:
        return keys
    runs = await open_runs(folder, name, before.shards)
    contents: list[bytes] = []
    try:
        for run in runs.runs:
            contents += [part.digests.tobytes() async for part in run.all()]
    except UNFIT as error:
        runs.told(before.path, error)
        contents.clear()
    uncovered = await in_thread(_uncovered, before.shards, runs.covered)

    async def read(entry: ShardEntry) -> bytes:
        content = await load_digests(folder, entry)
        return await in_thread(fitted, content, entry.records, KEY_BYTES)

    try:
        await in_thread(keys.add_files, [*contents, *await for_each(read, uncovered)])
    except ValueError as error:
        raise ManifestError(f"{folder.root}: the keys of the data set cannot be read: {error}") from error
    return keys


async def load_digests(folder: Storage, entry: ShardEntry) -> bytes:
    """Load the keys file of a shard. The shard must have keys.

    Raises:
        DatasetError: the file does not match the manifest.
    """
    keys = entry.keys
    assert keys is not None, "the shard has keys"
    content = await folder.get(keys.path, max_bytes=keys.bytes)
    if not digest_bytes(len(content), entry.records):
        raise DatasetError(f"{keys.path} does not have the size of {entry.records:,} keys; the file is damaged")
    if keys.crc32c not in (None, await in_thread(crc32c, content)):
        raise DatasetError(
            f"{keys.path} does not match its checksum in the manifest; run 'asyncrec verify' for details"
        )
    return content


def _uncovered(shards: ShardList, covered: NDArray[np.bool_]) -> list[ShardEntry]:
    """Return the shards that have keys but are not in any run."""
    rows = np.flatnonzero(shards.keyed & ~covered).tolist()
    return list(shards) if len(rows) == len(shards) else list(map(shards.__getitem__, rows))


# The name of the feature that distinguishes bodies, or a function that takes a page and returns such a value.
Seen: TypeAlias = str | Callable[[Mapping[str, Any]], str | bytes | None]
# A page can be a revisit, or be the target of one, only if the schema has these features.
_FEATURES = ("url", "date", "content", "digest", "type", "profile", "refers_to_url", "refers_to_date")
# How many of this writer's own bodies are kept in memory with their URLs. They take about 20 MB in total.
_MOST_NEW = 1 << 15
# How many bodies are sorted at once when loading shards that are not in any run.
_AT_ONCE = 1 << 17
# In a table, a value with this bit set is the location of a note about one of this writer's own bodies. Any other value
# is the row of a shard and the number of a record in it.
_NOTED = 1 << 63
# The lowest bits of such a location are the size of the note. If a long URL makes a note too long, the body is stored
# again.
_SIZE_BITS = 16
_MOST_NOTE = (1 << _SIZE_BITS) - 1


def check_seen(path: str, seen: Seen, schema: Schema | None) -> None:
    """Raise an error if revisits are impossible with these options.

    Raises:
        TypeError, ValueError: ``seen`` is neither the name of a feature nor a function, or the records are not pages.
    """
    if not isinstance(seen, str) and not callable(seen):
        raise ArgumentTypeError(f"seen must be a feature's name or a function, not {type(seen).__name__}")
    needed = [*_FEATURES, *([seen] if isinstance(seen, str) else [])]
    lacking = [] if schema is None else [name for name in needed if name not in schema.features]
    if schema is None or lacking:
        what = "the writer has no schema" if schema is None else f"the schema has no feature {lacking[0]!r}"
        raise ArgumentValueError(f"{path}: seen= requires pages, but {what}; pass schema=pages.PAGE")


class Body(NamedTuple):
    """A stored body, described by the page that has it.

    Attributes:
        url, date, record_id, digest: features of the page.
        strong: a collision-resistant digest of the page's content; empty if a function decides which bodies are equal.
        ticket: the ticket of the page's record; 0 if this writer has not stored the record itself.
        queue: the index of the queue to which the record was written.
    """

    url: str
    date: str
    record_id: str
    digest: str
    strong: str
    ticket: int = 0
    queue: int = 0

    @classmethod
    def of(cls, page: Mapping[str, Any], strong: str, ticket: int = 0, queue: int = 0) -> Body:
        """Create the description of a page's body."""
        url, date, record, digest = (str(page.get(name) or "") for name in ("url", "date", "record_id", "digest"))
        return cls(url, date, record, digest, strong, ticket, queue)


class Place(NamedTuple):
    """The location of a body that was stored before the writer opened.

    Attributes:
        row: the row of the shard in the snapshot.
        record: the number of the record in the shard.
    """

    row: int
    record: int


class KnownContents:
    """All bodies that a writer knows, for use in one event loop."""

    def __init__(self) -> None:
        self._tables = DigestTables()
        self._new: dict[bytes, Body] = {}
        self._leaving: dict[bytes, Body] = {}  # the bodies that a thread is writing to a table
        self._answers: dict[bytes, int | None] = {}  # the results of the last look-up in the tables
        self._notes = -1
        self._notes_size = 0

    def close(self) -> None:
        """Release the tables and the file of notes."""
        if self._notes >= 0:
            os.close(self._notes)
            self._notes = -1
        self._tables = DigestTables()

    def add(self, digest: bytes, body: Body) -> None:
        """Add a body that the writer has stored."""
        self._new[digest] = body

    def new(self, digest: bytes) -> Body | None:
        """Return a body that this writer has stored recently, if there is one."""
        return self._new.get(digest) or self._leaving.get(digest)

    async def ask(self, digests: Sequence[bytes]) -> None:
        """Look up many digests together, and keep the results for `find`."""
        if len(self._tables):
            found = await in_thread(self._tables.find, digests)
            self._answers = dict(zip(digests, found, strict=True))

    async def find(self, digest: bytes) -> Body | Place | None:
        """Return the body with this digest, or the location of its record; `None` if the body is not known."""
        if len(self._new) >= _MOST_NEW and not self._leaving:
            self._leaving, self._new = self._new, {}
            self._answers = {}
            try:
                await in_thread(self._put_away, self._leaving)
            finally:
                self._leaving = {}
        if (body := self.new(digest)) is not None or not len(self._tables):
            return body
        if digest in self._answers:
            value = self._answers[digest]
        else:
            (value,) = await in_thread(self._tables.find, [digest])
        if value is None:
            return self.new(digest)
        if value & _NOTED:
            return await in_thread(self._note_at, value & ~_NOTED)
        return Place(value >> 32, value & 0xFFFFFFFF)

    def _put_away(self, bodies: Mapping[bytes, Body]) -> None:
        """Move this writer's own bodies from memory to a table. Blocks."""
        if self._notes < 0:
            self._notes = temporary_file()
        notes = [json.dumps(body).encode()[:_MOST_NOTE] for body in bodies.values()]
        sizes = np.array([*map(len, notes)], np.uint64)
        starts = np.cumsum(sizes) - sizes + np.uint64(self._notes_size)
        with mapped_errors("writing", tempfile.gettempdir()):
            write_at(self._notes, b"".join(notes), self._notes_size)
        self._notes_size += int(sizes.sum())
        digests = np.frombuffer(b"".join(bodies), np.uint64).reshape(-1, 2)
        self._tables.add(Rows.of(digests, np.uint64(_NOTED) | starts << np.uint64(_SIZE_BITS) | sizes))

    def _note_at(self, value: int) -> Body | None:
        """Read the note about a body. Return `None` if the note was too long to be stored in full. Blocks."""
        size = value & _MOST_NOTE
        return None if size == _MOST_NOTE else Body(*json.loads(os.pread(self._notes, size, value >> _SIZE_BITS)))

    # -- opening ------------------------------------------------------------------------------------------------------

    async def load(self, folder: Storage, name: str, before: Manifest) -> None:
        """Load the digests of all bodies in a snapshot.

        Raises:
            DatasetError: a keys file does not match its shard.
        """
        shards = before.shards
        runs = await open_runs(folder, name, shards, contents=True)
        try:
            for run in runs.runs:
                await self._load_run(run)
        except UNFIT as error:
            await in_thread(self.close)  # this frees the files
            runs.told(before.path, error)

        def parts() -> list[NDArray[np.int64]]:
            rows = np.flatnonzero(shards.with_contents & ~runs.covered)
            ends = np.cumsum(shards.counts[rows]) // _AT_ONCE
            return np.split(rows, np.flatnonzero(np.diff(ends)) + 1) if len(rows) else []

        for rows in await in_thread(parts):
            await self._load_shards(folder, shards, rows)

    async def _load_run(self, run: OpenRun) -> None:
        maker = await in_thread(TableMaker, run.run.entries)
        try:
            async for part in run.all():
                await in_thread(_add_part, maker, part)
            await in_thread(lambda: self._tables.append(maker.end()))
        finally:
            await surely_in_thread(maker.close)  # freeing a large file may take a while

    async def _load_shards(self, folder: Storage, shards: ShardList, rows: NDArray[np.int64]) -> None:
        async def read(row: int) -> Rows:
            entry = shards[row]
            digests = digests_in(await load_digests(folder, entry), entry.records, of_contents=True)
            value = np.arange(entry.records, dtype=np.uint64) | np.uint64(row << 32)
            return await in_thread(Rows.of, digests, value)

        parts = await for_each(read, rows.tolist())
        await in_thread(lambda: self._tables.add(Rows.joined(parts)))


def _add_part(maker: TableMaker, part: Entries) -> None:
    """Add a part of a run to a table. Blocks."""
    value = (part.shards.astype(np.uint64) << np.uint64(32)) | part.records.astype(np.uint64)
    maker.add(Rows.of(part.digests, value))
