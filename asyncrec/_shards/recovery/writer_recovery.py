"""What one dead job left, made part of its data set or given up. See `_shards.recovery.recover` for the rules."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._records.reading.reader import open_reader
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import abandoned_error, load_closing
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.commit.shard_publisher import ShardPublisher
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import Journal, leftovers_of
from asyncrec._shards.journal.reader import JournalReader
from asyncrec._shards.manifest.names import claim_key, keys_key, mark_key, with_maker
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec._shards.manifest.snapshot import load_segments, merged
from asyncrec._shards.ownership.abandonment import abandon, delete_replaced, delete_unlisted
from asyncrec._shards.ownership.claims import abandon_local, take_life
from asyncrec._shards.ownership.leftovers import remove_leftovers, remove_leftovers_of
from asyncrec._shards.ownership.marks import find_claims, uses_plain_names
from asyncrec._shards.ownership.unlisted import entry_of_unlisted, ever_listed, is_there, published_by
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

__all__ = ["RecoveredWriter", "LocalWriterRecovery", "RemoteWriterRecovery", "clear_up"]

_log = logging.getLogger("asyncrec._shards")

# One shard is written at a time; some stores take chunks of 64 MiB.
_MEMORY_LIMIT = 256 << 20
_MOST_RECORD = 1 << 40


@dataclass(kw_only=True)
class RecoveredWriter:
    """What became of it; see `asyncrec._shards.recovery.recover.Recovery`. ``target`` is the data set's URL."""

    target: str = ""
    shards: list[ShardEntry] = field(default_factory=list)
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)


class _WriterRecovery:
    """One dead job's work, in ``target``, the folder of its data set."""

    def __init__(self, header: JobHeader, target: Storage) -> None:
        self._header = header
        self._target = target
        self._manifest: ManifestWriter
        self._publisher: ShardPublisher
        self._listed: set[str]
        self._own: set[str]
        self._plain = True
        self.done = RecoveredWriter(target=header.url)

    async def _begin(self) -> Segment | None:
        """Look at the manifest; returns what ended the job, if anything did."""
        header = self._header
        segments = await load_segments(self._target, header.name)
        self._listed = ever_listed(segments)
        self._own = ever_listed(segment for segment in segments if segment.writer == header.writer)
        self._manifest = ManifestWriter(
            self._target,
            header.name,
            header.writer,
            schema=header.schema,
            metadata=header.metadata,
            after=await merged(header.url, segments),
            committed=[entry for each in segments if each.writer == header.writer for entry in each.add],
        )
        self._publisher = ShardPublisher(
            self._target,
            header,
            budget=ByteBudget(_MEMORY_LIMIT),
            clock=self._manifest.clock,
            deadline=self._manifest.deadline,
            keep_sidecars=True,
        )
        self._plain = await uses_plain_names(self._target, header)
        return await load_closing(self._target, header.name, header.writer)

    async def _commit_published(self) -> None:
        """Commit the rolling shards that it had published, and no more."""
        for shard in await published_by(self._target, self._header):
            if shard not in self._listed:
                await self._commit(
                    await entry_of_unlisted(self._target, shard, self._header, self._manifest.clock.now())
                )

    async def _commit(self, entry: ShardEntry) -> None:
        try:
            await self._manifest.commit(entry)
        except ConflictError:
            # Another recovery was faster; or not, and then it is an error.
            if entry.path not in ever_listed(await load_segments(self._target, self._header.name)):
                raise
        else:
            self.done.shards.append(entry)
        self._listed.add(entry.path)
        self._own.add(entry.path)

    async def _close(self) -> None:
        """End a rolling job, whose shards are all committed."""
        try:
            await self._manifest.close()
        except ConflictError:
            closing = await load_closing(self._target, self._header.name, self._header.writer)
            if closing is None or closing.abandoned:
                raise


class RemoteWriterRecovery(_WriterRecovery):
    """Of a job without a disk of its own: what it had published."""

    async def run(self) -> None:
        """Commit a rolling writer's published shards, or give up what is all or nothing.

        Raises:
            StorageError, ManifestError.
        """
        closing = await self._begin()
        if closing is None and self._header.kind == "rolling":
            await self._commit_published()
            await self._close()
        elif closing is None and await abandon(self._target, self._header, plain=self._plain):
            self.done.abandoned.append(self._header.writer)
        await clear_up(self._target, self._header, plain=self._plain)


class LocalWriterRecovery(_WriterRecovery):
    """Of a job with a header on a disk: its journals, and in a spool its whole shards, too."""

    def __init__(self, journal: Journal, target: Storage) -> None:
        super().__init__(journal.header, target)
        self._journal = journal
        self._home: LocalStorage = journal.folder.owned_by(journal.header.writer)
        self._spool = journal.header.spool

    async def run(self) -> None:
        """Do it. What fails is raised; what was done until then stays done, and the rest is still there.

        Raises:
            ConflictError: it was abandoned, or others have what it promised.
            StorageError, ManifestError.
        """
        header = self._header
        closing = await self._begin()
        found = await in_thread(leftovers_of, self._home, header)
        if closing is not None and closing.abandoned and await in_thread(self._journal.holds_promises):
            error = abandoned_error(self._target, header.name, closing)
            error.add_note(f"what it left in {self._home.root} stays there; asyncrec.recover(abandon=) removes it")
            raise error
        if closing is None and header.kind == "rolling":
            for shard in found:
                await self._finish_rolling(shard)
            await self._commit_published()
            await self._close()
        elif closing is None and header.kind == "fixed" and await self._is_promised(found):
            await self._finish_fixed(found)
        elif closing is None and not (header.kind == "fixed" and self._listed.intersection(self._fixed_names())):
            self.done.discarded += found
            if await abandon_local(self._target, self._journal, plain=self._plain):
                self.done.abandoned.append(header.writer)
        await in_thread(remove_leftovers, self._journal)
        await clear_up(self._target, header, plain=self._plain)

    async def _finish_rolling(self, shard: str) -> None:
        if shard in self._listed and shard not in self._own:
            raise _taken(self._target, shard)
        if shard not in self._listed:
            entry = await self._finished(shard, empty=False)
            if entry is not None:
                await self._commit(entry)
        await in_thread(remove_leftovers_of, self._journal, shard)

    def _fixed_names(self) -> list[str]:
        return [self._header.shard_name(shard, plain=self._plain) for shard in range(self._header.num_shards or 0)]

    async def _is_promised(self, found: list[str]) -> bool:
        """Whether a fixed set is to be finished: a flush had returned, or its writer had begun to publish it.

        Raises:
            ConflictError: it is, and others have its names.
        """
        names = self._fixed_names()
        if taken := self._listed.intersection(names):
            if self._journal.acknowledged:
                raise _taken(self._target, min(taken))
            return False
        if self._journal.acknowledged:
            return True
        if self._spool:
            return await in_thread(lambda: any(self._home.path_of(shard).exists() for shard in found))
        missing = [name for name in names if name not in found]
        return any([await is_there(self._target, name) for name in missing])

    async def _finish_fixed(self, found: list[str]) -> None:
        entries = []
        for name in self._fixed_names():
            entry = await self._finished(name, empty=True) if name in found else None
            entries.append(entry or await self._unlisted_or_empty(name))
        await self._manifest.close(entries)
        self.done.shards += entries

    async def _unlisted_or_empty(self, name: str) -> ShardEntry:
        """Of a set: the writer had published it, or not begun it."""
        with suppress(ObjectNotFoundError):
            return await entry_of_unlisted(self._target, name, self._header, self._manifest.clock.now())
        async with self._publisher.open_shard(name) as shard:
            await shard.output.finish()
        return replace(self._publisher.entry_of(shard, 0, 0), first=None, last=None)

    async def _finished(self, shard: str, *, empty: bool) -> ShardEntry | None:
        """Publish the whole records of a journal, or a whole shard of the spool; `None` when there are none."""
        path, keys = await in_thread(self._source, shard)
        reader = JournalReader(str(path), str(keys), compressed=bool(self._header.compression.type))
        try:
            await in_thread(reader.open)
            batch = await in_thread(reader.next)
            if batch is None and not empty:
                await in_thread(self._report, reader, path)
                return None
            try:
                async with self._publisher.open_shard(shard) as out:
                    while batch is not None:
                        await out.write(*batch)
                        batch = await in_thread(reader.next)
                    await out.output.finish()
            except ObjectExistsError:
                # Published before, and not committed: by the writer itself, or by an earlier recovery.
                if self._header.num_shards is not None and not await self._begins_like(shard, path, keys):
                    raise _taken(self._target, shard) from None
                return await entry_of_unlisted(self._target, shard, self._header, self._manifest.clock.now())
            ended = await in_thread(self._report, reader, path)
            return replace(self._publisher.entry_of(out, 0, 0), first=None, last=format_time(ended))
        finally:
            reader.close()

    def _report(self, reader: JournalReader, path: Path) -> float:
        """Record what was not whole, and keep it if it is damage. Returns when the file was last written. Blocks."""
        self.done.cut_bytes += reader.cut
        if reader.damage is not None:
            kept = path.with_name(path.name.removesuffix(".partial") + ".damaged")
            with suppress(FileExistsError), mapped_errors("keeping", str(kept)):
                os.link(path, kept)
            self.done.damaged.append(str(kept))
            _log.warning("%s: damaged behind record %d; kept as %s", path, reader.records, kept)
        return path.stat().st_mtime

    async def _begins_like(self, shard: str, path: Path, keys: Path) -> bool:
        """Whether a shard of that name begins with the records of our journal."""
        ours = JournalReader(str(path), str(keys), compressed=bool(self._header.compression.type))
        try:
            await in_thread(ours.open)
            async with open_reader(shard, storage=self._target, max_record_bytes=_MOST_RECORD) as reader:
                batches = reader.batches()
                theirs: list[bytes] = []
                while (batch := await in_thread(ours.next)) is not None:
                    records = batch[0]
                    while len(theirs) < len(records):
                        more = await anext(batches, None)
                        if more is None:
                            return False
                        theirs += more
                    if theirs[: len(records)] != records:
                        return False
                    del theirs[: len(records)]
            return True
        finally:
            ours.close()

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _source(self, shard: str) -> tuple[Path, Path]:
        """The file of a shard and that of its keys: whole ones in a spool, else the journal's."""
        home = self._home
        path = home.path_of(shard)
        if not (self._spool and path.exists()):
            path = home.partial_of(shard)
        # Keys are published before the shard. Releases before 0.2 named them by the shard alone.
        beside = keys_key(with_maker(self._header.name, shard, self._header.writer))
        candidates: list[Path] = []
        for key in dict.fromkeys((beside, keys_key(shard))):
            candidates += [home.path_of(key), home.partial_of(key)]
        return path, next((each for each in candidates if each.exists()), candidates[1])


async def clear_up(target: Storage, header: JobHeader, *, plain: bool) -> None:
    """Take away what is left of a job that has ended: what it replaced, what no commit names, its claims and mark."""
    closing = await load_closing(target, header.name, header.writer)
    if closing is None:
        return
    await delete_replaced(target, header.name, closing.remove)
    await delete_unlisted(target, header, plain=plain)
    local = not header.life  # else somebody else may use the plain names while a request of its own is on its way
    for claim in await find_claims(target, header.name):
        if claim.writer == header.writer and (local or not closing.abandoned):
            await target.delete(claim_key(header.name, claim.number))
    await target.delete(mark_key(header.name, header.writer))
    if header.life:
        with suppress(StorageError):  # whoever gave the job up holds it, and ends it
            life = await take_life(header)
            if life is not None:
                await surely_in_thread(life.end)


def _taken(target: Storage, shard: str) -> ConflictError:
    return ConflictError(
        f"{target.root}/{shard}: another writer has published shards of this name; what was acknowledged to this one "
        "stays in its unfinished files: asyncrec.recover(abandon=) discards them"
    )
