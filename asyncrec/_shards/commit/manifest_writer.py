"""A `ManifestWriter` commits: it creates the segments of one writer, each entirely or not at all.

A segment is created exclusively, under a name that only its writer uses. So a commit has one moment; it can be tried
again when its answer was lost, and whoever gave the writer up meanwhile is found in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from anyio.lowlevel import cancel_shielded_checkpoint

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS, Deadline
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.commit.closing import abandoned_error, entomb, load_closing
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.fates import Fates
from asyncrec._shards.commit.shard import CommitClock
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import closing_segment_key, segment_key, sequence_of
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec.errors import ConflictError, ObjectExistsError, StorageError, UnsettledError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

OnCommit = Callable[[ShardEntry], Awaitable[None] | None]

_path_log = PathLog("asyncrec.shards")

# Entries that are noted, and told to the log, before others run: each takes two microseconds.
_TOLD_AT_ONCE = 250


class ManifestWriter:
    """The part of a data set's manifest that one writer writes.

    Attributes:
        clock: gives the times of its commits.
        deadline: ends everything it still does; an exit that failed brings it forward.
        entries: everything that the writer committed.
        closed: whether its closing segment is there.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        writer: str,
        *,
        schema: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        after: Manifest | None = None,
        committed: Iterable[ShardEntry] = (),
        on_commit: OnCommit | None = None,
        fates: Fates | None = None,
        promised: Callable[[], bool] = lambda: True,
        recovered_by: str = "",
    ) -> None:
        """``after`` is the data set as the writer found it, and ``committed`` what it had added itself before that.

        ``fates`` are those of the shards that it commits. ``promised`` tells whether `asyncrec.recover` is to finish
        what this could not. ``recovered_by`` names the machine where another closes what the writer had left.
        """
        self.clock = CommitClock(after)
        self.deadline = Deadline()
        self.entries = list(committed)
        self.records = sum(entry.records for entry in self.entries)
        self.bytes = sum(entry.bytes for entry in self.entries)
        self.closed = False
        self._asked: dict[str, list[str]] = {}  # the times of segments, by key, as long as no answer has come
        self._storage = storage
        self._name = name
        self._path = join(storage.root, name)
        self._writer = writer
        self._schema = schema
        self._metadata = metadata or {}
        self._on_commit = on_commit
        self._fates = fates if fates is not None else Fates()
        self._promised = promised
        self._closes_with = {"recovered_by": recovered_by} if recovered_by else {}

    @property
    def unsettled(self) -> bool:
        """Whether a commit was answered by an error, or not at all, and nobody has found out if it took effect."""
        return bool(self._asked)

    async def commit(self, entry: ShardEntry) -> None:
        """Make a published rolling shard part of the data set.

        Raises:
            ConflictError: somebody else decided what becomes of this shard: another recovery committed it, or the job
                was abandoned.
            StorageError: it is not committed; or nobody knows, and then `unsettled` is set.
        """
        segment = self._segment((entry,), time=entry.committed)
        await self._put(segment_key(self._name, self._writer, sequence_of(entry.path)), segment)
        await self._committed(entry)

    def found(self, entries: Iterable[ShardEntry]) -> None:
        """Note shards that another process has committed for this writer: its last segment stands for all."""
        for entry in entries:
            self._listed(entry)

    async def close(
        self,
        new: Iterable[ShardEntry] = (),
        *,
        remove: tuple[str, ...] = (),
        removal: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the last segment: all that was committed, and what is new with it, in one step.

        ``metadata`` is added to what the others have.

        Raises:
            ConflictError: the job was abandoned, or another of this id ended.
            StorageError: nothing new is committed; or nobody knows, and then `unsettled` is set.
        """
        new = tuple(new)
        self._metadata = {**self._metadata, **(metadata or {})}
        segment = self._segment(
            (*self.entries, *new),
            time=self.clock.now(),
            closed=True,
            remove=remove,
            removal=removal,
            extra=self._closes_with,
        )
        try:
            await self._put(closing_segment_key(self._name, self._writer), segment)
        except UnsettledError as error:
            await self._settle(error)
        except BaseException as error:
            if self.unsettled:  # asyncio's own cancellation, which goes through every shield
                await self._settle(error)
                self.closed = True
                for entry in new:
                    self._listed(entry)
            raise
        self.closed = True
        for number, entry in enumerate(new, 1):
            await self._committed(entry)
            if number % _TOLD_AT_ONCE == 0:
                await cancel_shielded_checkpoint()

    async def _settle(self, error: BaseException) -> None:
        """Find out whether the job has ended well, by taking the name of its last segment for a tombstone.

        Not where something was promised: `asyncrec.recover` finds out, and finishes it.

        Raises:
            StorageError: it has not, and will not; or still nobody knows.
        """
        if self._promised():
            raise error
        with self.deadline.within(CLEAN_UP_SECONDS):
            try:
                closing = await entomb(self._storage, self._name, self._writer, by="itself")
            except Exception as second:
                raise error from second
            except BaseException:  # cancelled once more
                raise error from None
            self._asked.clear()  # only what is all or nothing comes here, and it has one segment
            if closing.abandoned:
                failure = error.__cause__ if isinstance(error.__cause__, StorageError) else error
                failure.add_note(f"{self._path}: no record of the writer {self._writer} was committed")
                raise failure
            return
        raise error

    def _segment(self, add: tuple[ShardEntry, ...], *, time: str, **members: Any) -> Segment:
        return Segment(writer=self._writer, time=time, add=add, schema=self._schema, metadata=self._metadata, **members)

    async def _put(self, key: str, segment: Segment) -> None:
        """Create a segment, which is the moment of the commit."""
        content = await in_thread(segment.encode)  # some microseconds for each shard, and a closing one has them all
        asked, new = self._asked.setdefault(key, []), segment.add
        asked.append(segment.time)
        try:
            await create(self._storage, key, content, deadline=self.deadline)
        except ObjectExistsError as error:
            closing = await load_closing(self._storage, self._name, self._writer)  # until it is read, all is in doubt
            named = () if closing is None else closing.add
            # An earlier attempt of which no answer came: the times of all attempts differ.
            own = closing is not None and closing.time in asked and (named, closing.remove) == (new, segment.remove)
            if own or {entry.path for entry in named}.isdisjoint(entry.path for entry in new):
                del self._asked[key]  # else it stays in doubt: what a commit names is nobody's to delete
            if own:
                return
            if closing is not None and closing.abandoned:
                raise abandoned_error(self._storage, self._name, closing) from error
            raise ConflictError(
                f"{self._storage.root}/{key}: another process has already committed with the writer_id "
                f"{self._writer}; use a new writer_id"
            ) from error
        except UnsettledError:
            raise
        except StorageError:  # refused: this request created nothing, and an earlier one may have
            asked.pop()
            if not asked:
                del self._asked[key]
            raise
        del self._asked[key]

    async def _committed(self, entry: ShardEntry) -> None:
        self._listed(entry)
        told = {"writer": self._writer, "shard": entry.path, "records": entry.records, "bytes": entry.bytes}
        _path_log.info(self._path, "committed %s: %d records, %d bytes", entry.path, entry.records, entry.bytes, **told)
        if self._on_commit is not None:
            result = self._on_commit(entry)
            if inspect.isawaitable(result):
                await result

    def _listed(self, entry: ShardEntry) -> None:
        self._fates.move(entry.path, "commit")
        self.entries.append(entry)
        self.records += entry.records
        self.bytes += entry.bytes
