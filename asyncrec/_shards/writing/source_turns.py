"""`SourceTurns` keeps track of the sources that a writer takes and releases, or loses to another writer.

Before it writes the first record of a source, the writer takes the source's next turn. The previous owner's log has
then ended, or states that the turn was released, and it also states the source's position
(`asyncrec._shards.ownership.sources`).

Suppose writer B takes a source from writer A, which has records of that source in memory. A has not acknowledged these
records, and B reads them again, so A drops them. If A dropped them silently, its next flush would report that they are
safe. Therefore, every call that would acknowledge a record raises an error until the caller has released the source.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import cycle

import anyio

from asyncrec._records.writing.levels import Levels
from asyncrec._records.writing.write_batch import BatchSource, Positions, WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue, copy_for_reraise
from asyncrec._shards.manifest.loading import LoadedManifest
from asyncrec._shards.manifest.progress import MOST_SOURCES, NO_POSITION
from asyncrec._shards.ownership.sources import TakenSource, check_source, take_source
from asyncrec._shards.writing.acknowledgements import Acknowledgements
from asyncrec._shards.writing.coordinator import CommitCoordinator
from asyncrec._shards.writing.job import Job
from asyncrec.errors import ArgumentValueError, ConflictError


class Source(BatchSource):
    """A source whose records this writer accepts.

    Attributes:
        delays: the number of reasons why the next position may have to wait: the calls in progress, plus one if the
            turn is missing.
        lock: a lock that makes waiting calls accept their positions in the order of the calls.
        since: the first of this writer's turns after which no other owner has had a turn.
        start: the position that was stored when the writer took its current turn.
        ticket: the last ticket, which covers all accepted positions; 0 before the first.
        lost: the error that explains why the writer has lost the source; `None` if it has not.
        is_told: whether a call has raised that error.
    """

    __slots__ = ("delays", "is_told", "lock", "lost", "queue", "since", "start", "ticket")

    def __init__(self, name: str, queue: WriteQueue) -> None:
        super().__init__(name, NO_POSITION)
        self.queue = queue
        self.delays = 1
        self.lock = anyio.Lock(fast_acquire=True)
        self.since = 0
        self.start = NO_POSITION
        self.ticket = 0
        self.lost: ConflictError | None = None
        self.is_told = False


class SourceTurns:
    """The sources that one writer has taken and not released, including lost ones, by name.

    Attributes:
        ahead: the sources whose last accepted position may have no record.
        forget_keys: a function that is called with the digests of a batch before and after some of its records were
            dropped.
        get: a function that returns the source with the given name, or `None`.
        to_take: sources that were lost and then released. The caller must take them, to learn their position, before
            writing again.
    """

    def __init__(
        self,
        path: str,
        queues: Sequence[WriteQueue],
        coordinator: CommitCoordinator,
        acknowledgements: Acknowledgements,
        *,
        continues: bool,
    ) -> None:
        """With ``continues``, the writer accepts records with a source and a position; otherwise, it rejects them."""
        self._path = path
        self._queues = queues
        self._coordinator = coordinator
        self._acknowledgements = acknowledgements
        self._continues = continues
        self._sources: dict[str, Source] = {}
        self.ahead: dict[str, Source] = {}
        self._queues_in_turn = cycle(queues)
        self._taking = anyio.Lock()  # held while taking a turn, so that the next call can reuse the manifest
        self._known: LoadedManifest | None = None
        self._has_dropped = False  # whether records were dropped because their source was lost
        self.forget_keys: Callable[[bytes, bytes], None] = lambda before, after: None
        self.get = self._sources.get
        self.to_take: set[str] = set()
        coordinator.job.manifest.progress.lift = self._lifted

    @property
    def progress(self) -> dict[str, int]:
        """The last position, accepted or already stored, of each source that this writer has."""
        return {
            name: source.position
            for name, source in self._sources.items()
            if source.turn and source.position != NO_POSITION
        }

    def begin(self, source: str) -> Source:
        if not self._continues:
            raise ArgumentValueError(
                f"{self._path}: source= requires a writer that appends rolling shards, without partition_by and "
                "without on_error='discard'"
            )
        if len(self._sources) >= MOST_SOURCES:
            raise ArgumentValueError(
                f"{self._path}: a data set has at most {MOST_SOURCES:,} sources; a source is a partition of a "
                "queue, not a message"
            )
        found = self._sources[source] = Source(source, next(self._queues_in_turn))
        return found

    async def open(self, name: str, source: Source) -> None:
        """Take the next turn of a source.

        If another process ends the writer's log in the meantime, take the turn for the writer's next log.
        """
        while True:
            self._acknowledgements.check()
            job = self._coordinator.job
            try:
                taken = await self._take(job, name)
            except ConflictError as error:
                if not error.ended or await self._coordinator.go_on(job, None, Levels(), error) is None:
                    raise
            else:
                if self._coordinator.job is job:
                    break
        self._acknowledgements.check()
        source.turn = source.since = taken.turn
        source.position = source.written = source.start = taken.position
        source.delays -= 1

    async def _take(self, job: Job, name: str, since: int | None = None) -> TakenSource:
        async with self._taking:
            taken = await take_source(job.store, job.header, name, since=since, known=self._known)
            self._known = taken.known
            return taken

    def _lifted(self, positions: Positions) -> Positions:
        """Return the positions that a commit can state.

        These are the positions of its shards, and later positions that do not depend on any other shard.
        """
        stated = self._coordinator.job.manifest.progress.stated
        lifted = dict(positions)
        for name, source in self.ahead.items():
            source.queue.seal()
            if source.turn and source.position > source.written:
                known = (source.turn, source.start)
                if max(known, *(each.get(name, known) for each in (positions, stated)))[1] >= source.written:
                    lifted[name] = source.turn, source.position
        return lifted

    # -- releasing and losing sources ---------------------------------------------------------------------------------

    async def release(self, names: Sequence[str], commit: Callable[[int], Awaitable[None]]) -> None:
        """Commit the records of these sources, and release their turns. Skip sources that the writer does not have.

        If the call is cancelled, or raises another error, before all records are committed, the writer keeps the
        sources that it had not lost. After that, it keeps none of them, even if the request fails, because another
        writer may have seen the release.

        Raises:
            ConflictError: another writer has taken some of the sources, and no earlier call has reported that. All of
                the sources are released.
        """
        found = {name: self._sources[name] for name in sorted(map(check_source, names)) if name in self._sources}
        async with AsyncExitStack() as stack:
            for source in found.values():
                source.delays += 1
                stack.callback(_left, source)
                await stack.enter_async_context(source.lock)
            for name, source in found.items():
                if not source.turn:
                    self._forget(name, source)
            if any(source.turn for source in found.values()):
                await commit(max(source.ticket for source in found.values()))
            reached = {name: (source.turn, source.position) for name, source in found.items() if source.turn}
            for name, source in found.items():
                self._forget(name, source)
            if reached:
                turns = {name: turn for name, (turn, _) in reached.items()}
                told = {name: pair for name, pair in reached.items() if pair[1] != NO_POSITION}
                try:
                    await self._coordinator.job.manifest.say(releases=turns, progress=told)
                except ConflictError as error:
                    if not error.ended:  # its turns ended when its log did
                        raise
        refuse(*(source for source in found.values() if not source.is_told))

    async def commit(self) -> None:
        """Commit the last positions that have no record, unless an open shard has earlier records of their source."""
        while self.ahead:
            job = self._coordinator.job
            try:
                if job.manifest.progress.of(()):
                    await job.manifest.say()
                return
            except ConflictError as error:
                if await self._coordinator.go_on(job, None, Levels(), error) is None:
                    raise

    def _forget(self, name: str, source: Source) -> None:
        if self._sources.get(name) is source:
            if source.lost is not None:
                self.to_take.add(name)
            del self._sources[name]
            self.ahead.pop(name, None)

    def refuse_lost(self, *, if_dropped: bool = False) -> None:
        """Raise an error if a source is lost but not released; with ``if_dropped``, only if records were dropped.

        Raises:
            ConflictError: a source is lost; the error names all such sources.
        """
        if self._has_dropped or not if_dropped:
            refuse(*self._sources.values())

    async def take_again(self, job: Job) -> None:
        """Take each source again for a new log, after the previous log was ended, unless the source has another owner.

        Raises:
            StorageError: it is unknown whether a source was taken, or the new log was also ended.
        """
        taken: dict[Source, TakenSource | ConflictError] = {}
        while left := [each for each in self._sources.items() if each[1].turn and each[1] not in taken]:
            for name, source in left:  # in the meantime, calls may take other sources for the ended log
                try:
                    taken[source] = await self._take(job, name, source.turn)
                except ConflictError as error:
                    if error.ended:
                        raise
                    error.sources = (name,)
                    taken[source] = error
        # There must be no await from here on, so that no other task runs in between.
        for source, found in taken.items():
            if isinstance(found, TakenSource):
                source.turn, source.start = found.turn, found.position
            else:
                source.lost, source.turn = found, 0
                source.delays += 1
        job.manifest.progress.lift = self._lifted
        for queue in self._queues:
            queue.seal()
        for queue in self._queues:
            for batch in queue.inbox.revise(self._continued):
                queue.levels.dropped(batch.first)

    def continued(self, batches: Sequence[WriteBatch], levels: Levels) -> list[WriteBatch]:
        """Return batches of the previous log with the turns of the current log, and without records of lost sources."""
        left = []
        for batch in batches:
            if (again := self._continued(batch)) is None:
                levels.dropped(batch.first)
            else:
                left.append(again)
        return left

    def _continued(self, batch: WriteBatch) -> WriteBatch | None:
        digests = batch.digests
        again = batch.with_turns(self._turn_now)
        if again is None or again.count < batch.count:
            self._has_dropped = True
            self.forget_keys(digests or b"", b"" if again is None else again.digests or b"")
        return again

    def _turn_now(self, name: str, turn: int) -> int:
        source = self._sources.get(name)
        return source.turn if source is not None and turn >= source.since else 0


def _left(source: Source) -> None:
    source.delays -= 1


def refuse(*sources: Source) -> None:
    """Raise an error if the writer has lost any of these sources.

    Raises:
        ConflictError: the error names the lost sources.
    """
    lost = [(source, source.lost) for source in sources if source.lost is not None]
    if lost:
        error = copy_for_reraise(lost[0][1])
        assert isinstance(error, ConflictError), "the copy has the same type"
        error.sources = tuple(source.name for source, _ in lost)
        for source, _ in lost:
            source.is_told = True
        raise error
