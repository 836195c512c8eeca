"""`Finishing` commits the records that a dead job had promised to keep.

The complete records of a journal are written to a shard, with an index and keys, under the name that the dead writer
would have used, and the shard is committed like any other. Therefore the manifest lists only shards that were published
and verified, and after a crash, the next call continues with the rest. A shard that the job itself published is
committed unchanged.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import load_closing, load_last
from asyncrec._shards.commit.log_progress import load_stated
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.commit.shard_publisher import ShardPublisher
from asyncrec._shards.journal.header import JobHeader, this_host
from asyncrec._shards.journal.job_files import JobFiles
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.staging import Staging
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import rolling_shard_name, sequence_of
from asyncrec._shards.manifest.segment import ShardEntry, format_time
from asyncrec._shards.manifest.snapshot import address_of, merged
from asyncrec._shards.ownership.flushed import Flushed, check_end, delete_adopted, live_of, publish_flushed, put_fence
from asyncrec._shards.ownership.journals import Journals
from asyncrec._shards.ownership.unlisted import begins_like, entry_of_unlisted, is_there, load_positions, published_by
from asyncrec._shards.ownership.verdict import Ending
from asyncrec.errors import (
    ConflictError,
    FormatError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TruncatedError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")

# This is enough for one shard at a time in any store: some stores need chunks of 64 MiB.
_MEMORY_LIMIT = 256 << 20


class Finishing:
    """The completion of one dead job, which this process has locked. Call `begin` first."""

    def __init__(self, target: Storage, staging: Staging, names: JobNames, ending: Ending) -> None:
        """``target`` is the folder of the data set; ``ending`` collects the results."""
        self._target = target
        self._staging = staging
        self._header = staging.header
        self._names = names
        self._ending = ending
        # The address in the header may be different, because the folder may have been moved or copied.
        self._address = address_of(self._header.url, target, self._header.name, storage=target)
        self._history: History
        self._flushes = staging.files is None and bool(staging.header.silent_after)
        self._flushed: Flushed | None = None
        self._last = 0
        self._manifest: ManifestWriter
        self._publisher: ShardPublisher
        self._own: set[str]

    async def begin(self) -> None:
        """Read the manifest. If the writer flushes to its store, first prevent it from flushing any more records."""
        header = self._header
        last: int | None = None
        if self._flushes:
            if not self._staging.dead:
                await put_fence(self._target, header.name, header.writer, by=this_host())
            last, segment = await load_last(self._target, header.name, header.writer)
            self._last = last
            self._flushed = None
            if segment is not None and segment.closed:  # another process was faster; `_commit` compares the entries
                last = None
            else:
                self._flushed = await live_of(self._target, header.name, header.writer)
        self._history = await load_history(self._target, header.name)
        committed = await in_thread(self._history.added_by, header.writer)
        self._own = {entry.path for entry in committed}
        for path in [each for each in self._own if each.startswith(f"{header.name}-{header.writer}.")]:
            # An earlier recovery wrote this shard under a name that only that recovery used (see `_finished`).
            self._own.add(rolling_shard_name(header.name, header.writer, sequence_of(path)))
        self._manifest = ManifestWriter(
            self._target,
            header.name,
            header.writer,
            schema=header.schema,
            metadata=header.metadata,
            after=await merged(header.url, self._history),
            committed=committed,
            recovered_by=this_host(),
            last=last,
        )
        if self._history.progress and last is not None:  # otherwise the commit reads the progress
            self._manifest.progress.won(await load_stated(self._target, header.name, header.writer))
        self._publisher = self._publisher_of(header)

    def _publisher_of(self, header: JobHeader) -> ShardPublisher:
        budget, clock, deadline = ByteBudget(_MEMORY_LIMIT), self._manifest.clock, self._manifest.deadline
        publisher = ShardPublisher(
            self._target, header, budget=budget, clock=clock, deadline=deadline, keep_sidecars=True
        )
        publisher.say = self._manifest.say
        return publisher

    async def rolling(self, *, close: bool) -> None:
        """Commit a rolling writer's journals and published shards, in the segment that ends its log.

        The naive approach is to commit one shard after another, and then end the log. But suppose the writer is not
        dead, but only asleep for hours. The first of these segments has the writer's next number, and is deleted when a
        checkpoint covers it. When the writer wakes up, it creates a segment with the same number again, and reports
        records as committed that no reader can find. The segment that ends a log, by contrast, is never deleted.

        With ``close``, the log ends with a closing segment; otherwise it ends with a tombstone, because the writer's
        disk may come back.

        Raises:
            ConflictError: the job was abandoned, or another job has shards with its names.
            StorageError: a shard could not be created, for instance because a file has an unknown hard link. All other
                shards are committed.
        """
        files = self._staging.files
        entries: dict[str, ShardEntry] = {}
        finished: list[str] = []
        left: set[str] = set()
        refused: StorageError | None = None
        for shard in await self._taken(files) if files is not None else ():
            assert files is not None, "the loop is empty without files"
            journals = Journals(files, self._header, self._ending)
            if refused is not None and await in_thread(journals.noted, shard) is not None:
                left.add(shard)  # otherwise, the source's progress would go past the refused shard
                continue
            try:
                if (entry := await self._of_journal(files, shard)) is not None:
                    entries[shard] = entry
                finished.append(shard)
            except StorageError as error:
                if error.errno != errno.EMLINK:
                    raise
                refused = refused or error
        for shard in await published_by(self._target, self._names):
            known = shard in entries or shard in left
            if not (known or self._is_listed(shard) or self._history.removes(shard)):
                # An object with fewer records than a flush acknowledged is left out, and is deleted once the log ends.
                flushed = self._flushed.records.get(shard, 0) if self._flushed is not None else 0
                try:
                    entry = await self._unlisted(shard)
                    if entry.records < flushed:
                        raise TruncatedError(f"it has only {entry.records:,} of {flushed:,} flushed records")
                    entries[shard] = entry
                except FormatError as error:
                    if not self._flushes:
                        raise
                    message = "the shard %s, which its writer had not committed, is damaged and was left out: %s"
                    path = join(self._target.root, self._header.name)
                    _path_log.warning(path, message, shard, error, writer=self._header.writer, shard=shard)
        adopted: list[ShardEntry] = []
        if self._flushed is not None:
            wanted = [
                shard
                for shard in sorted(self._flushed.records)
                if not (shard in entries or self._is_listed(shard))  # a void shard's records are only here
            ]
            adopted, cut = await publish_flushed(self._target, self._header, self._flushed, wanted, self._manifest)
            self._ending.cut_bytes += cut
        try:
            won = await self._commit(list(entries.values()), adopted, end=refused is None, well=close)
            if self._flushes and not self._staging.dead:
                await check_end(self._target, self._header, self._last + 1)
        except ConflictError:
            await delete_adopted(self._target, adopted)
            raise
        if not won:
            await delete_adopted(self._target, adopted)
        for shard in finished:
            assert files is not None, "finished is empty without files"
            await in_thread(files.remove_shard, shard)
        if refused is not None:
            raise refused

    async def is_promised(self, files: JobFiles) -> bool:
        """Return whether a fixed set must be finished, because a flush had returned or all its shards are complete.

        If neither is the case, the job died while it was publishing or deleting shards, so only some may exist.

        Raises:
            ConflictError: the set must be finished, but other jobs have its names.
        """
        names = self._names.fixed()
        if taken := await in_thread(lambda: list(filter(self._is_listed, names))):
            if self._staging.acknowledged:
                raise _taken(self._target, min(taken))
            return False
        if self._staging.acknowledged:
            return True
        for name in names:
            if not await in_thread(files.is_whole, name) and not await is_there(self._target, name):
                return False
        return True

    async def fixed(self, files: JobFiles) -> None:
        """Commit all shards of a fixed set."""
        found = await self._taken(files)
        entries = []
        for name in self._names.fixed():
            entry = await self._finished(files, name, empty=True) if name in found else None
            entries.append(entry or await self._unlisted_or_empty(name))
        await self._manifest.close(entries)
        for entry in entries:
            self._ending.commits(entry, self._address)

    async def _taken(self, files: JobFiles) -> list[str]:
        """Take over the job's files and return its shards. Log a warning for each foreign file with such a name."""
        found = await in_thread(files.shards)
        for path in await in_thread(files.strangers):
            message = (
                "this is not a regular file of this user, so it is not considered a file of the writer %s and "
                "is left unchanged"
            )
            _path_log.warning(path, message, self._header.writer, writer=self._header.writer)
        await in_thread(files.take)
        return found

    def _is_listed(self, shard: str) -> bool:
        """Return whether a shard with this name was ever committed."""
        return shard in self._own or self._history.lists(shard)

    async def _of_journal(self, files: JobFiles, shard: str) -> ShardEntry | None:
        """Create a shard from a journal. Return `None` if the journal is empty or the shard is already committed."""
        if self._is_listed(shard):
            if shard not in self._own:
                raise _taken(self._target, shard)
            return None
        return await self._finished(files, shard, empty=False)

    async def _commit(
        self, entries: Sequence[ShardEntry], adopted: Sequence[ShardEntry], *, end: bool, well: bool
    ) -> bool:
        """Commit shards; with ``end``, in the segment that ends the log. Return false if another process was faster.

        That process has put the records of the ``adopted`` shards, which come from the flush log, into its own shards.
        """
        if not end:
            for entry in entries:
                await self._manifest.commit(entry)
        else:
            try:
                await self._manifest.close([*entries, *adopted], abandoned_by="" if well else this_host())
            except ConflictError:
                # If all these shards are listed, another recovery has committed them.
                closing = await load_closing(self._target, self._header.name, self._header.writer)
                history = await load_history(self._target, self._header.name)
                lost = (closing is None or closing.abandoned) if well else closing is None
                if lost or not all(history.lists(entry.path) for entry in entries):
                    raise
                return False
        for entry in (*entries, *adopted):
            self._ending.commits(entry, self._address)
        return True

    async def _unlisted(self, shard: str) -> ShardEntry:
        now, compression = self._manifest.clock.now(), self._header.compression
        entry = await entry_of_unlisted(self._target, self._names, shard, compression=compression, now=now)
        if (files := self._staging.files) is not None:
            noted = await in_thread(Journals(files, self._header, self._ending).positions, shard, entry.records)
            positions = {} if noted is None else noted[1]
        else:
            positions = await load_positions(self._target, self._names, entry)
        if positions:
            self._manifest.progress.note(shard, positions)
        return entry

    async def _unlisted_or_empty(self, name: str) -> ShardEntry:
        """Return the entry of a shard that has no journal: the one its writer published, or else a new, empty shard."""
        with suppress(ObjectNotFoundError):
            return await self._unlisted(name)
        async with self._publisher.open_shard(name) as shard:
            await shard.output.finish()
        return replace(self._publisher.entry_of(shard, 0, 0), first=None, last=None)

    async def _finished(self, files: JobFiles, shard: str, *, empty: bool, anew: bool = False) -> ShardEntry | None:
        """Publish the complete records of a journal or spooled shard. Return `None` if it has none, unless ``empty``.

        ``anew`` means that a damaged object has the shard's name, so that a name which only this attempt uses is
        needed. The damaged object is deleted once the log has ended, and if that deletion took effect late, it would
        delete a new shard with the same name. If the journal has positions, only the records up to the last recorded
        position are published.
        """
        header, publisher, name = self._header, self._publisher, shard
        if anew:
            header = replace(header, writer=f"{header.writer}.{secrets.token_hex(4)}")
            publisher = self._publisher_of(header)
            name = rolling_shard_name(header.name, header.writer, sequence_of(shard))
        journals = Journals(files, self._header, self._ending)
        noted = await in_thread(journals.positions, shard)
        if noted is not None:
            self._manifest.progress.note(name, noted[1])
        reader = await in_thread(journals.reader, shard, None if noted is None else noted[0])
        try:
            await in_thread(reader.open)
            batch = await in_thread(reader.next)
            if batch is None and not empty:
                await in_thread(journals.report, reader)
                return None
            try:
                async with publisher.open_shard(name) as out:
                    while batch is not None:
                        await out.write(*batch)
                        batch = await in_thread(reader.next)
                    await out.output.finish()
            except ObjectExistsError:
                # The writer itself, or an earlier recovery, published the shard without committing it.
                with suppress(FormatError):
                    if await begins_like(self._target, shard, await in_thread(journals.reader, shard)):
                        return await self._unlisted(shard)
                if self._names.num_shards is not None:
                    raise _in_the_way(self._target, shard) from None
                return await self._finished(files, shard, empty=empty, anew=True)
            await in_thread(journals.report, reader)
            return replace(publisher.entry_of(out, 0, 0), first=None, last=format_time(reader.modified))
        finally:
            reader.close()


def _taken(target: Storage, shard: str) -> ConflictError:
    return ConflictError(
        f"{target.root}/{shard}: another writer has published a shard with this name; the records that this writer "
        "acknowledged stay in its unfinished files. To discard them, run 'asyncrec recover' with --abandon"
    )


def _in_the_way(target: Storage, shard: str) -> ConflictError:
    return ConflictError(
        f"{target.root}/{shard}: this object does not hold the records of the writer, which stay in its unfinished "
        "files. If the object is not needed, delete it and recover again; to discard the records, run 'asyncrec "
        "recover' with --abandon"
    )
