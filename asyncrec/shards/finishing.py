"""What one dead writer left in a folder, made part of its data set. See `asyncrec.shards.recovery` for the rules."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError
from asyncrec.records.budget import ByteBudget
from asyncrec.records.reader import open_reader
from asyncrec.records.slab import SLAB_RECORDS, Slab, framed_size
from asyncrec.shards.adopting import adopted, ever_listed, is_there, sequence_of
from asyncrec.shards.commit import Committer
from asyncrec.shards.journal import Journal, Note, leftovers_of
from asyncrec.shards.manifest import merge_segments
from asyncrec.shards.naming import fixed_shard_name, index_key, keys_key, rolling_shard_name
from asyncrec.shards.replay import Replay
from asyncrec.shards.segment import ShardEntry, format_time
from asyncrec.shards.snapshot import load_segments
from asyncrec.storage.base import Storage
from asyncrec.storage.local import LocalStorage, mapped_errors
from asyncrec.tasks import in_thread

__all__ = ["Finished", "Finishing"]

_log = logging.getLogger("asyncrec.shards")

# One shard is written at a time; some stores take chunks of 64 MiB.
_MEMORY_LIMIT = 256 << 20


@dataclass(kw_only=True)
class Finished:
    """What became of it; see `asyncrec.shards.recovery.Recovery`."""

    shards: list[ShardEntry] = field(default_factory=list)
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)


class Finishing:
    """One writer's journals, and in a spool its whole shards, into ``target``, the folder of its data set."""

    def __init__(self, journal: Journal, target: Storage) -> None:
        self._journal = journal
        self._note: Note = journal.note
        self._home: LocalStorage = journal.folder.owned_by(journal.note.writer)
        self._target = target
        self._spool = journal.note.spool
        self._committer: Committer
        self._listed: set[str]
        self._closed: bool
        self.done = Finished()

    async def run(self) -> None:
        """Do it. What fails is raised; what was done until then stays done, and the rest is still there.

        Raises:
            StorageError, ManifestError.
        """
        note = self._note
        segments = await load_segments(self._target, note.name)
        self._listed = ever_listed(segments)
        self._closed = any(segment.closed and segment.writer == note.writer for segment in segments)
        self._committer = Committer(
            self._target,
            note.name,
            note.writer,
            compression=note.compression,
            with_index=note.index,
            schema=note.schema,
            metadata=note.metadata,
            on_commit=None,
            budget=ByteBudget(_MEMORY_LIMIT),
            after=merge_segments(note.url, segments),
            keep_beside=True,
        )
        found = await in_thread(leftovers_of, self._home, note)
        if note.replace:
            await self._discard(found)
            published = [shard for shard in await self._published() if shard not in self._listed]
            await self._committer.take_back([key for shard in published for key in _objects(shard)])
        elif note.num_shards is None:
            for shard in found:
                await self._finish_rolling(shard)
            for shard in await self._published():
                if shard not in self._listed:
                    await self._commit(await adopted(self._target, shard, note.compression.type, self._committer.now()))
        else:
            await self._finish_fixed(found, note.num_shards)

    async def _finish_rolling(self, shard: str) -> None:
        if shard not in self._listed:
            entry = await self._finished(shard, empty=False)
            if entry is not None:
                await self._commit(entry)
        await in_thread(self._remove, shard)

    async def _finish_fixed(self, found: list[str], num_shards: int) -> None:
        names = [fixed_shard_name(self._note.name, shard, num_shards) for shard in range(num_shards)]
        promised = self._journal.acknowledged
        listed = self._listed.intersection(names)
        if not listed and (promised or await self._publishing(found, names)):
            entries = []
            for name in names:
                entry = await self._finished(name, empty=True) if name in found else None
                entries.append(entry or await self._adopted_or_empty(name))
            await self._committer.close(entries)
            self.done.shards += entries
            self._listed.update(names)
        elif listed and promised and not self._closed:
            raise _taken(self._target, min(listed))
        elif not self._closed:
            self.done.discarded += found
        for name in found:
            await in_thread(self._remove, name)

    async def _publishing(self, found: list[str], names: list[str]) -> bool:
        """Whether the writer had begun to publish, which it does when all is written."""
        if self._spool:
            return await in_thread(self._any_whole, found)
        missing = [name for name in names if name not in found]
        return any([await is_there(self._target, name) for name in missing])

    async def _adopted_or_empty(self, name: str) -> ShardEntry:
        """Of a set: the writer had published it, or not begun it."""
        with suppress(ObjectNotFoundError):
            return await adopted(self._target, name, self._note.compression.type, self._committer.now())
        async with self._committer.open_shard(name, exclusive=True) as shard:
            await shard.output.finish()
        return replace(self._committer.entry_of(shard, 0, 0), first=None, last=None)

    async def _commit(self, entry: ShardEntry) -> None:
        sequence = sequence_of(entry.path)
        try:
            await self._committer.commit(sequence, entry)
        except ObjectExistsError:
            # Another recovery was faster; or not, and then it is an error.
            if entry.path not in ever_listed(await load_segments(self._target, self._note.name)):
                raise
        else:
            self.done.shards.append(entry)
        self._listed.add(entry.path)

    async def _finished(self, shard: str, *, empty: bool) -> ShardEntry | None:
        """Publish the whole records of a journal, or a whole shard of the spool; `None` when there are none."""
        path, keys = await in_thread(self._source, shard)
        replay = await in_thread(_opened, path, keys, bool(self._note.compression.type))
        try:
            slabs = await in_thread(_next_slabs, replay)
            if not slabs and not empty:
                await in_thread(self._report, replay, path)
                return None
            try:
                async with self._committer.open_shard(shard, exclusive=True) as out:
                    while slabs:
                        await out.output.write(slabs)
                        slabs = await in_thread(_next_slabs, replay)
                    await out.output.finish()
            except ObjectExistsError:
                # Published before, and not committed: by the writer itself, or by an earlier recovery.
                if self._note.num_shards is not None and not await self._begins_like(shard, path, keys):
                    raise _taken(self._target, shard) from None
                return await adopted(self._target, shard, self._note.compression.type, self._committer.now())
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
        replay = await in_thread(_opened, path, keys, bool(self._note.compression.type))
        try:
            async with open_reader(shard, storage=self._target) as reader:
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

    async def _discard(self, found: list[str]) -> None:
        self.done.discarded += found
        for shard in found:
            await in_thread(self._remove, shard)

    async def _published(self) -> list[str]:
        """The writer's rolling shards in the data set, in a commit or not."""
        prefix = rolling_shard_name(self._note.name, self._note.writer, 0).removesuffix("000000.tfrecord")
        keys = [info.key async for info in self._target.list_objects(prefix)]
        return [key for key in keys if re.fullmatch(r"[0-9]{6,}\.tfrecord", key[len(prefix) :])]

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _any_whole(self, shards: list[str]) -> bool:
        return any(self._home.path_of(shard).exists() for shard in shards)

    def _source(self, shard: str) -> tuple[Path, Path]:
        """The file of a shard and that of its keys: whole ones in a spool, else the journal's."""
        home = self._home
        path, keys = home.path_of(shard), home.path_of(keys_key(shard))
        if not (self._spool and path.exists()):
            path = home.partial_of(shard)
        if not keys.exists():  # they are published before the shard
            keys = home.partial_of(keys_key(shard))
        return path, keys

    def _remove(self, shard: str) -> None:
        """What is in the manifest, or shall not be, needs no journal. The shard goes last: it is what is looked for."""
        home = self._home
        for key in (index_key(shard), keys_key(shard), shard):
            paths = [home.partial_of(key)]
            if self._spool:
                paths.append(home.path_of(key))
            for path in paths:
                with mapped_errors("deleting", str(path)), suppress(FileNotFoundError):
                    home.disk.system.unlink(path)


def _opened(path: Path, keys: Path, compressed: bool) -> Replay:
    return Replay(str(path), str(keys), compressed=compressed)


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


def _objects(shard: str) -> tuple[str, str, str]:
    return shard, index_key(shard), keys_key(shard)


def _taken(target: Storage, shard: str) -> ObjectExistsError:
    return ObjectExistsError(
        f"{target.root}/{shard}: another writer has published shards of this name; what was acknowledged to this one "
        "stays in its unfinished files until those names are free"
    )
