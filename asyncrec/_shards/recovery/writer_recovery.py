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
from asyncrec._records.writing.write_batch import SLAB_RECORDS, Slab, framed_size
from asyncrec._shards.commit.closing import abandoned_error, load_closing
from asyncrec._shards.commit.commit import Committer
from asyncrec._shards.journal.header import Note
from asyncrec._shards.journal.journal import Journal, leftovers_of
from asyncrec._shards.journal.reader import Replay
from asyncrec._shards.manifest.names import claim_key, keys_key, mark_key, sequence_of, with_maker
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec._shards.manifest.snapshot import load_segments, merged
from asyncrec._shards.ownership.abandonment import abandon, delete_replaced, delete_unlisted
from asyncrec._shards.ownership.claims import abandon_local, take_life
from asyncrec._shards.ownership.leftovers import remove_leftovers, remove_leftovers_of
from asyncrec._shards.ownership.marks import find_claims, uses_plain_names
from asyncrec._shards.ownership.unlisted import adopted, ever_listed, is_there, published_by
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

__all__ = ["Finished", "FinishingLocal", "FinishingRemote", "clear_up"]

_log = logging.getLogger("asyncrec._shards")

# One shard is written at a time; some stores take chunks of 64 MiB.
_MEMORY_LIMIT = 256 << 20
_MOST_RECORD = 1 << 40


@dataclass(kw_only=True)
class Finished:
    """What became of it; see `asyncrec._shards.recovery.recover.Recovery`. ``target`` is the data set's URL."""

    target: str = ""
    shards: list[ShardEntry] = field(default_factory=list)
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)


class _Finishing:
    """One dead job's work, in ``target``, the folder of its data set."""

    def __init__(self, note: Note, target: Storage) -> None:
        self._note = note
        self._target = target
        self._committer: Committer
        self._listed: set[str]
        self._own: set[str]
        self._plain = True
        self.done = Finished(target=note.url)

    async def _begin(self) -> Segment | None:
        """Look at the manifest; returns what ended the job, if anything did."""
        note = self._note
        segments = await load_segments(self._target, note.name)
        self._listed = ever_listed(segments)
        self._own = ever_listed(segment for segment in segments if segment.writer == note.writer)
        self._committer = Committer(
            self._target,
            note,
            budget=ByteBudget(_MEMORY_LIMIT),
            after=await merged(note.url, segments),
            keep_beside=True,
        )
        self._committer.entries = [entry for each in segments if each.writer == note.writer for entry in each.add]
        self._plain = await uses_plain_names(self._target, note)
        return await load_closing(self._target, note.name, note.writer)

    async def _commit_published(self) -> None:
        """Commit the rolling shards that it had published, and no more."""
        for shard in await published_by(self._target, self._note):
            if shard not in self._listed:
                await self._commit(await adopted(self._target, shard, self._note, self._committer.now()))

    async def _commit(self, entry: ShardEntry) -> None:
        try:
            await self._committer.commit(sequence_of(entry.path), entry)
        except ConflictError:
            # Another recovery was faster; or not, and then it is an error.
            if entry.path not in ever_listed(await load_segments(self._target, self._note.name)):
                raise
        else:
            self.done.shards.append(entry)
        self._listed.add(entry.path)
        self._own.add(entry.path)

    async def _close(self) -> None:
        """End a rolling job, whose shards are all committed."""
        try:
            await self._committer.close([])
        except ConflictError:
            closing = await load_closing(self._target, self._note.name, self._note.writer)
            if closing is None or closing.abandoned:
                raise


class FinishingRemote(_Finishing):
    """Of a job without a disk of its own: what it had published."""

    async def run(self) -> None:
        """Commit a rolling writer's published shards, or give up what is all or nothing.

        Raises:
            StorageError, ManifestError.
        """
        closing = await self._begin()
        if closing is None and self._note.kind == "rolling":
            await self._commit_published()
            await self._close()
        elif closing is None and await abandon(self._target, self._note, plain=self._plain):
            self.done.abandoned.append(self._note.writer)
        await clear_up(self._target, self._note, plain=self._plain)


class FinishingLocal(_Finishing):
    """Of a job with a note on a disk: its journals, and in a spool its whole shards, too."""

    def __init__(self, journal: Journal, target: Storage) -> None:
        super().__init__(journal.note, target)
        self._journal = journal
        self._home: LocalStorage = journal.folder.owned_by(journal.note.writer)
        self._spool = journal.note.spool

    async def run(self) -> None:
        """Do it. What fails is raised; what was done until then stays done, and the rest is still there.

        Raises:
            ConflictError: it was abandoned, or others have what it promised.
            StorageError, ManifestError.
        """
        note = self._note
        closing = await self._begin()
        found = await in_thread(leftovers_of, self._home, note)
        if closing is not None and closing.abandoned and await in_thread(self._journal.holds_promises):
            error = abandoned_error(self._target, note.name, closing)
            error.add_note(f"what it left in {self._home.root} stays there; asyncrec.recover(abandon=) removes it")
            raise error
        if closing is None and note.kind == "rolling":
            for shard in found:
                await self._finish_rolling(shard)
            await self._commit_published()
            await self._close()
        elif closing is None and note.kind == "fixed" and await self._is_promised(found):
            await self._finish_fixed(found)
        elif closing is None and not (note.kind == "fixed" and self._listed.intersection(self._fixed_names())):
            self.done.discarded += found
            if await abandon_local(self._target, self._journal, plain=self._plain):
                self.done.abandoned.append(note.writer)
        await in_thread(remove_leftovers, self._journal)
        await clear_up(self._target, note, plain=self._plain)

    async def _finish_rolling(self, shard: str) -> None:
        if shard in self._listed and shard not in self._own:
            raise _taken(self._target, shard)
        if shard not in self._listed:
            entry = await self._finished(shard, empty=False)
            if entry is not None:
                await self._commit(entry)
        await in_thread(remove_leftovers_of, self._journal, shard)

    def _fixed_names(self) -> list[str]:
        return [self._note.shard_name(shard, plain=self._plain) for shard in range(self._note.num_shards or 0)]

    async def _is_promised(self, found: list[str]) -> bool:
        """Whether a fixed set is to be finished: a flush had returned, or all of it is whole.

        Of one that had promised nothing, what is whole may be a part: of what it published, or had not taken back yet.

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
        for name in names:
            here = self._spool and name in found and await in_thread(self._home.path_of(name).exists)
            if not here and not await is_there(self._target, name):
                return False
        return True

    async def _finish_fixed(self, found: list[str]) -> None:
        entries = []
        for name in self._fixed_names():
            entry = await self._finished(name, empty=True) if name in found else None
            entries.append(entry or await self._adopted_or_empty(name))
        await self._committer.close(entries)
        self.done.shards += entries

    async def _adopted_or_empty(self, name: str) -> ShardEntry:
        """Of a set: the writer had published it, or not begun it."""
        with suppress(ObjectNotFoundError):
            return await adopted(self._target, name, self._note, self._committer.now())
        async with self._committer.open_shard(name) as shard:
            await shard.output.finish()
        return replace(self._committer.entry_of(shard, 0, 0), first=None, last=None)

    async def _finished(self, shard: str, *, empty: bool) -> ShardEntry | None:
        """Publish the whole records of a journal, or a whole shard of the spool; `None` when there are none."""
        path, keys = await in_thread(self._source, shard)
        replay = Replay(str(path), str(keys), compressed=bool(self._note.compression.type))
        try:
            await in_thread(replay.open)
            slabs = await in_thread(_next_slabs, replay)
            if not slabs and not empty:
                await in_thread(self._report, replay, path)
                return None
            try:
                async with self._committer.open_shard(shard) as out:
                    while slabs:
                        await out.output.write(slabs)
                        slabs = await in_thread(_next_slabs, replay)
                    await out.output.finish()
            except ObjectExistsError:
                # Published before, and not committed: by the writer itself, or by an earlier recovery.
                if self._note.num_shards is not None and not await self._begins_like(shard, path, keys):
                    raise _taken(self._target, shard) from None
                return await adopted(self._target, shard, self._note, self._committer.now())
            ended = await in_thread(self._report, replay, path)
            return replace(self._committer.entry_of(out, 0, 0), first=None, last=format_time(ended))
        finally:
            replay.close()

    def _report(self, replay: Replay, path: Path) -> float:
        """Note what was not whole, and keep it if it is damage. Returns when the file was last written. Blocks."""
        self.done.cut_bytes += replay.cut
        if replay.damage is not None:
            kept = path.with_name(path.name.removesuffix(".partial") + ".damaged")
            with suppress(FileExistsError), mapped_errors("keeping", str(kept)):
                os.link(path, kept)
            self.done.damaged.append(str(kept))
            _log.warning("%s: damaged behind record %d; kept as %s", path, replay.records, kept)
        return path.stat().st_mtime

    async def _begins_like(self, shard: str, path: Path, keys: Path) -> bool:
        """Whether a shard of that name begins with the records of our journal."""
        replay = Replay(str(path), str(keys), compressed=bool(self._note.compression.type))
        try:
            await in_thread(replay.open)
            async with open_reader(shard, storage=self._target, max_record_bytes=_MOST_RECORD) as reader:
                batches = reader.batches()
                theirs: list[bytes] = []
                while (batch := await in_thread(replay.next)) is not None:
                    ours = batch[0]
                    while len(theirs) < len(ours):
                        more = await anext(batches, None)
                        if more is None:
                            return False
                        theirs += more
                    if theirs[: len(ours)] != ours:
                        return False
                    del theirs[: len(ours)]
            return True
        finally:
            replay.close()

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _source(self, shard: str) -> tuple[Path, Path]:
        """The file of a shard and that of its keys: whole ones in a spool, else the journal's."""
        home = self._home
        path = home.path_of(shard)
        if not (self._spool and path.exists()):
            path = home.partial_of(shard)
        # Keys are published before the shard. Releases before 0.2 named them by the shard alone.
        beside = keys_key(with_maker(self._note.name, shard, self._note.writer))
        candidates: list[Path] = []
        for key in dict.fromkeys((beside, keys_key(shard))):
            candidates += [home.path_of(key), home.partial_of(key)]
        return path, next((each for each in candidates if each.exists()), candidates[1])


async def clear_up(target: Storage, note: Note, *, plain: bool) -> None:
    """Take away what is left of a job that has ended: what it replaced, what no commit names, its claims and mark."""
    closing = await load_closing(target, note.name, note.writer)
    if closing is None:
        return
    await delete_replaced(target, note.name, closing.remove)
    await delete_unlisted(target, note, plain=plain)
    local = not note.life  # else somebody else may use the plain names while a request of its own is on its way
    for claim in await find_claims(target, note.name):
        if claim.writer == note.writer and (local or not closing.abandoned):
            await target.delete(claim_key(note.name, claim.number))
    await target.delete(mark_key(note.name, note.writer))
    if note.life:
        with suppress(StorageError):  # whoever gave the job up holds it, and ends it
            life = await take_life(note)
            if life is not None:
                await surely_in_thread(life.end)


def _next_slabs(replay: Replay) -> list[Slab]:
    """The next records, framed; empty at the end."""
    batch = replay.next()
    if batch is None:
        return []
    records, keys = batch
    slabs = []
    for first in range(0, len(records), SLAB_RECORDS):
        slab = Slab(0, 0.0)
        slab.records = records[first : first + SLAB_RECORDS]
        slab.keys = None if keys is None else keys[first : first + SLAB_RECORDS]
        slab.size = framed_size(list(map(len, slab.records)))
        slab.seal()
        slabs.append(slab)
    return slabs


def _taken(target: Storage, shard: str) -> ConflictError:
    return ConflictError(
        f"{target.root}/{shard}: another writer has published shards of this name; what was acknowledged to this one "
        "stays in its unfinished files: asyncrec.recover(abandon=) discards them"
    )
