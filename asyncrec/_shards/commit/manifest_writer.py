"""`ManifestWriter` commits shards by creating the segments of one writer's log, each completely or not at all.

Each segment is created exclusively, under the next number of the log (`asyncrec._shards.commit.closing`). A commit is
therefore atomic, and the writer detects if another process has ended its log.

If the store does not respond, the same bytes are sent again under the same number before any other request. Otherwise,
if the request for number 7 were delayed until 8 exists, another process would list 6 and 8, unaware that 7 may still
appear. Shards that become ready while a request is in flight go into the next segment.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS, Deadline
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.commit.closing import abandoned_error, entomb, load_closing, load_last
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.fates import Fates
from asyncrec._shards.commit.flush_log import FlushLog
from asyncrec._shards.commit.log_progress import LogProgress, load_stated
from asyncrec._shards.commit.shard import CommitClock
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import segment_key
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec.errors import ConflictError, ObjectExistsError, StorageError, UnsettledError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

OnCommit = Callable[[ShardEntry], Awaitable[None] | None]

_path_log = PathLog("asyncrec.shards")

# The number of commits to log before other tasks may run. Logging each one takes two microseconds.
_TOLD_AT_ONCE = 250
_ATTEMPTS = 100


@dataclass(eq=False)
class _Group:
    """Shards that will be committed together by one segment."""

    entries: list[ShardEntry] = field(default_factory=list)
    sent: bool = False
    error: Exception | None = None


@dataclass(frozen=True)
class _Doubt:
    """A segment that was requested but not yet confirmed."""

    segment: Segment
    content: bytes
    new: tuple[ShardEntry, ...]


class ManifestWriter:
    """A writer's log, which is its part of the data set's manifest.

    Attributes:
        clock: the clock for commit times.
        deadline: the deadline for all requests. An exit after an error or a cancellation brings it forward.
        entries: the entries of all shards that the writer has committed.
        closed: whether its closing segment exists.
        progress: the progress of its sources.
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
        last: int | None = 0,
        flush_log: FlushLog | None = None,
    ) -> None:
        """``after`` is the manifest that the writer found, and ``committed`` the shards that it had already added.

        ``fates`` are its shards' states. ``promised`` returns whether `asyncrec.recover` must complete a failed commit.
        ``recovered_by`` names the machine of another process that closes the log. ``last`` is the last segment's
        number, or `None` to look it up. Commits make records in the ``flush_log`` void, and state its last number.
        """
        self.clock = CommitClock(after)
        self.deadline = Deadline()
        self.entries = list(committed)
        self.records, self.bytes = sum(each.records for each in self.entries), sum(each.bytes for each in self.entries)
        self.closed = False
        self.progress = LogProgress()
        self._last = last
        self._recovers = last is None
        self._flush_log = flush_log
        self._turn = anyio.Lock(fast_acquire=True)  # held while a segment is in flight
        self._next = _Group()
        self._doubt: _Doubt | None = None
        self._storage, self._name = storage, name
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
        """Whether a commit's outcome is unknown, because the store returned an error or did not respond."""
        return self._doubt is not None

    async def commit(self, entry: ShardEntry) -> None:
        """Commit a published rolling shard, together with other shards that are ready.

        If the call is cancelled before it sends the request, the shard is not committed.

        Raises:
            ConflictError: another process has ended the writer's log, or commits in the writer's place.
            StorageError: the shard was not committed, or this is unknown and `unsettled` is set.
        """
        await checkpoint_if_cancelled()
        group = self._next
        group.entries.append(entry)
        try:
            with anyio.CancelScope(shield=True):  # each request has a time limit
                async with self._turn:
                    if not group.sent:
                        await self._send_group(group)
        finally:
            if not group.sent:
                group.entries.remove(entry)
        if group.error is not None:
            raise group.error
        await self._tell(entry)

    async def _send_group(self, group: _Group) -> None:
        group.sent, self._next = True, _Group()

        def make() -> tuple[Segment, tuple[ShardEntry, ...]] | None:
            new = tuple(each for each in group.entries if self._fates[each.path] != "committed")
            return (self._segment(new, time=max(each.committed for each in new)), new) if new else None

        try:
            await self._append(make)
        except Exception as error:
            group.error = error
        except BaseException as error:  # native asyncio cancellation, which ignores shields
            group.error = UnsettledError(f"{self._path}: it is unknown whether {group.entries[0].path} was committed")
            group.error.__cause__ = error
            raise

    async def say(self, **said: Any) -> None:
        """Commit a segment that adds no shard. ``said`` sets attributes of `Segment`. Raises the errors of `commit`.

        The segment states the progress of the sources and of the flush log, which may be its only purpose. It may also
        remove a damaged shard that no commit names, so that no process can commit the shard before it is deleted.
        """
        async with self._turn:
            # No segment may follow the end of the log.
            await self._append(lambda: None if self.closed else (self._segment((), time=self.clock.now(), **said), ()))

    async def close(
        self,
        new: Iterable[ShardEntry] = (),
        *,
        remove: tuple[str, ...] = (),
        removal: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        abandoned_by: str = "",
        carried: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the last segment, which commits all new shards together and lists the earlier ones again.

        ``metadata`` is added to the metadata of the other segments. If the segment is a tombstone, ``abandoned_by``
        names its machine. ``carried`` contains its other members, such as the progress of the sources (`carried_from`).

        Raises:
            ConflictError: the job was abandoned, or another job with this id has ended.
            StorageError: no new shard was committed, or this is unknown and `unsettled` is set.
        """
        new, committed = tuple(new), len(self.entries)
        self._metadata = {**self._metadata, **(metadata or {})}

        def make() -> tuple[Segment, tuple[ShardEntry, ...]] | None:
            if self.closed:
                if self.entries[committed:] != list(new):
                    raise ConflictError(f"{self._path}: an earlier attempt at this commit succeeded with other shards")
                return None
            fresh = tuple(each for each in new if self._fates[each.path] != "committed")
            members = {"closed": True, "remove": remove, "removal": removal, "extra": self._closes_with}
            members |= carried or {}
            if abandoned_by:
                members |= {"abandoned": True, "extra": {"abandoned_by": abandoned_by, **self._closes_with}}
            add = fresh if abandoned_by else (*self.entries, *fresh)
            return self._segment(add, time=self.clock.now(), **members), fresh

        try:
            async with self._turn:
                await self._append(make)
        except UnsettledError as error:
            await self._settle(error)
        except BaseException as error:
            if self.unsettled:  # native asyncio cancellation, which ignores shields
                await self._settle(error)
            raise
        for number, entry in enumerate(new, 1):
            await self._tell(entry)
            if number % _TOLD_AT_ONCE == 0:
                await cancel_shielded_checkpoint()

    async def _settle(self, error: BaseException) -> None:
        """Find out whether the last segment was created, by trying to create a tombstone in its place.

        Raises:
            StorageError: the segment was not created and never will be, or this is unknown and left to `recover`.
        """
        if self._promised():
            raise error
        with self.deadline.within(CLEAN_UP_SECONDS):
            try:
                closing = await entomb(self._storage, self._name, self._writer, by="itself")
            except Exception as second:
                raise error from second
            except BaseException:  # cancelled again
                raise error from None
            doubt, self._doubt = self._doubt, None  # only an all-or-nothing job gets here, and it has only one segment
            if closing.abandoned:
                failure = error.__cause__ if isinstance(error.__cause__, StorageError) else error
                failure.add_note(f"{self._path}: no record of the writer {self._writer} was committed")
                raise failure
            assert doubt is not None, "the last segment is in doubt"
            self._won(doubt)
            return
        raise error

    def _segment(self, add: tuple[ShardEntry, ...], *, time: str, **members: Any) -> Segment:
        if self._flush_log is not None and not members.get("closed"):
            members["flushed"] = self._flush_log.ledger.last
        if said := self.progress.of(add, all=bool(members.get("closed"))):
            members["progress"] = {**members.get("progress", {}), **said}
        if not self._last or members.get("closed"):  # a reader always reads the first or the closing segment
            members |= {"schema": self._schema, "metadata": self._metadata}
        return Segment(writer=self._writer, time=time, add=add, **members)

    async def _append(self, make: Callable[[], tuple[Segment, tuple[ShardEntry, ...]] | None]) -> None:
        """Create the next segment of the log, which commits the shards that it adds.

        A segment in doubt is sent first. Then ``make`` returns the next segment and its shards, or `None` to stop.
        """
        if self._doubt is not None:
            await self._ask(self._doubt, again=True)
        for attempts_left in reversed(range(_ATTEMPTS if self._recovers else 1)):
            if self._last is None:
                await self._look()
            if (made := make()) is None:
                return
            content = await in_thread(made[0].encode)  # microseconds per shard, but a closing segment has all
            try:
                await self._ask(_Doubt(made[0], content, made[1]), again=False)
                return
            except ConflictError:
                # A delayed request of the dead writer took effect, or another process is also recovering the writer.
                if not (self._recovers and attempts_left):
                    raise
                self._last = self._doubt = None

    async def _look(self) -> None:
        """Read the log of another process's writer, so that no shard is committed twice.

        Raises:
            ConflictError: the log has ended.
        """
        self._last, last = await load_last(self._storage, self._name, self._writer)
        if last is not None and last.closed:
            raise self._lost(last)
        # Read this after the last segment, so that a closing segment also lists the shards of that segment.
        history = await load_history(self._storage, self._name)
        known = {entry.path for entry in self.entries}
        for entry in await in_thread(history.added_by, self._writer):
            if entry.path not in known:
                self._listed(entry)
        if history.progress:
            self.progress.won(await load_stated(self._storage, self._name, self._writer))

    async def _ask(self, doubt: _Doubt, *, again: bool) -> None:
        assert self._last is not None, "_look has set it"
        self._doubt = doubt
        try:
            key = segment_key(self._name, self._writer, self._last + 1)
            await create(self._storage, key, doubt.content, deadline=self.deadline)
        except ObjectExistsError as error:
            closing = await load_closing(self._storage, self._name, self._writer)  # the outcome is in doubt until then
            history = await load_history(self._storage, self._name)
            if not any(history.lists(entry.path) for entry in doubt.new):
                self._doubt = None  # otherwise the segment stays in doubt, so that no committed shard is deleted
            raise self._lost(closing) from error
        except UnsettledError:
            raise
        except StorageError:  # rejected: this request created nothing, but an earlier one may have
            if not again:
                self._doubt = None
            raise
        self._won(doubt)

    def _won(self, doubt: _Doubt) -> None:
        self._doubt = None
        self._last = (self._last or 0) + 1
        self.closed = doubt.segment.closed
        self.progress.won(doubt.segment.progress)
        for entry in doubt.new:
            self._listed(entry)
        if self._flush_log is not None:
            self._flush_log.committed({entry.path for entry in doubt.new}, doubt.segment.flushed)

    def _lost(self, closing: Segment | None) -> ConflictError:
        """Return the error for a writer whose next number was taken by another process."""
        if closing is not None and closing.abandoned:
            return abandoned_error(self._storage, self._name, closing)
        return ConflictError(
            f"{self._path}: another process has committed for the writer {self._writer}; an id can be used only once",
            ended=closing is not None,
        )

    async def _tell(self, entry: ShardEntry) -> None:
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
