"""`LocalWriterRecovery`: what one dead job left on a disk becomes part of its data set, or is given up.

The rules are in `_shards.recovery.recover`.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from dataclasses import replace

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import ANY_RECORD_BYTES
from asyncrec._path_log import PathLog
from asyncrec._records.reading.reader import open_reader
from asyncrec._shards.commit.closing import abandoned_error
from asyncrec._shards.journal.job_files import (
    TAKEN,
    kept_path,
    leftovers_of,
    other_names,
    strangers_among,
    take_journals,
)
from asyncrec._shards.journal.journal import Journal
from asyncrec._shards.journal.reader import JournalReader
from asyncrec._shards.manifest.names import keys_key, with_maker
from asyncrec._shards.manifest.segment import ShardEntry, format_time
from asyncrec._shards.ownership.claims import abandon_local
from asyncrec._shards.ownership.clear_up import clear_up, remove_leftovers, remove_leftovers_of
from asyncrec._shards.ownership.unlisted import entry_of_unlisted, is_there
from asyncrec._shards.recovery.writer_recovery import WriterRecovery
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.opening import own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

_path_log = PathLog("asyncrec.shards")


class LocalWriterRecovery(WriterRecovery):
    """The recovery of a job that has its header on a disk: of its journals, and in a spool of its whole shards, too."""

    def __init__(self, journal: Journal, target: Storage) -> None:
        super().__init__(journal.header, target)
        self._journal = journal
        self._folder: LocalStorage = journal.folder.owned_by(f"{journal.header.writer}{TAKEN}")
        self._spool = journal.header.spool

    async def run(self, *, completes: bool = True) -> bool:
        """Recover what can be. What fails is raised; what was done until then stays done, and the rest is still there.

        Without ``completes``, what belongs together and could be committed is left as it is; False then.

        Raises:
            ConflictError: it was abandoned, or others have what it promised.
            StorageError, ManifestError.
        """
        header = self._header
        closing = await self._begin()
        found = await in_thread(leftovers_of, self._folder, header)
        for path in await in_thread(strangers_among, self._folder, header):
            message = "it is no regular file of this user's, and no leftover of the writer %s: it is left as it is"
            _path_log.warning(path, message, header.writer, writer=header.writer)
        if closing is not None and closing.abandoned and await in_thread(self._journal.holds_promises):
            error = abandoned_error(self._target, header.name, closing)
            command = header.recover_command(self._folder.root if header.spool else header.url, abandon=True)
            error.add_note(f"what it left in {self._folder.root} stays there; {command} removes it")
            raise error
        await in_thread(take_journals, self._journal.folder, header)
        if closing is None and header.kind == "rolling":
            refused = [problem for shard in found if (problem := await self._finish_rolling(shard)) is not None]
            await self._commit_published()
            if refused:
                raise refused[0]
            await self._close()
        elif closing is None and header.kind == "fixed" and await self._is_promised(found):
            if not completes:
                return False
            await self._finish_fixed(found)
        elif closing is None and not (header.kind == "fixed" and await self._any_listed(self._fixed_names())):
            self.done.discarded += found
            if await abandon_local(self._target, self._journal, plain=self._plain):
                self.done.abandoned.append(header.writer)
        await in_thread(remove_leftovers, self._journal)
        await clear_up(self._target, header, plain=self._plain)
        return True

    async def _finish_rolling(self, shard: str) -> StorageError | None:
        """Commit a shard; returns why it was not, if its file has an unknown second name."""
        if self._is_listed(shard) and shard not in self._own:
            raise _taken(self._target, shard)
        if not self._is_listed(shard):
            try:
                entry = await self._finished(shard, empty=False)
            except StorageError as error:
                if error.errno != errno.EMLINK:
                    raise
                return error
            if entry is not None:
                await self._commit(entry)
        await in_thread(remove_leftovers_of, self._journal, shard)
        return None

    def _fixed_names(self) -> list[str]:
        return [self._header.shard_name(shard, plain=self._plain) for shard in range(self._header.num_shards or 0)]

    async def _is_promised(self, found: list[str]) -> bool:
        """Whether a fixed set is to be finished: a flush had returned, or all of it is whole.

        Of one that had promised nothing, what is whole may be a part: of what it published, or had not taken back yet.

        Raises:
            ConflictError: it is, and others have its names.
        """
        names = self._fixed_names()
        if taken := await self._any_listed(names):
            if self._journal.acknowledged:
                raise _taken(self._target, min(taken))
            return False
        if self._journal.acknowledged:
            return True
        for name in names:
            here = self._spool and name in found and await in_thread(own_file, str(self._folder.path_of(name)))
            if not here and not await is_there(self._target, name):
                return False
        return True

    async def _finish_fixed(self, found: list[str]) -> None:
        entries = []
        for name in self._fixed_names():
            entry = await self._finished(name, empty=True) if name in found else None
            entries.append(entry or await self._unlisted_or_empty(name))
        await self._manifest.close(entries)
        self.done.shards += entries

    async def _unlisted_or_empty(self, name: str) -> ShardEntry:
        """A shard of a set that has no journal: the writer had published it, or not begun it."""
        with suppress(ObjectNotFoundError):
            return await entry_of_unlisted(self._target, name, self._header, self._manifest.clock.now())
        async with self._publisher.open_shard(name) as shard:
            await shard.output.finish()
        return replace(self._publisher.entry_of(shard, 0, 0), first=None, last=None)

    async def _finished(self, shard: str, *, empty: bool) -> ShardEntry | None:
        """Publish the whole records of a journal, or a whole shard of the spool; `None` when there are none."""
        reader = await in_thread(self._reader, shard)
        try:
            await in_thread(reader.open)
            batch = await in_thread(reader.next)
            if batch is None and not empty:
                await in_thread(self._report, reader)
                return None
            try:
                async with self._publisher.open_shard(shard) as out:
                    while batch is not None:
                        await out.write(*batch)
                        batch = await in_thread(reader.next)
                    await out.output.finish()
            except ObjectExistsError:
                # Published before, and not committed: by the writer itself, or by an earlier recovery.
                if self._header.num_shards is not None and not await self._begins_like(shard):
                    raise _taken(self._target, shard) from None
                return await entry_of_unlisted(self._target, shard, self._header, self._manifest.clock.now())
            await in_thread(self._report, reader)
            return replace(self._publisher.entry_of(out, 0, 0), first=None, last=format_time(reader.modified))
        finally:
            reader.close()

    def _report(self, reader: JournalReader) -> None:
        """Record what was not whole, and keep it if it is damage. Blocks."""
        self.done.cut_bytes += reader.cut
        if reader.damage is not None:
            kept = _keep(reader.path)
            self.done.damaged.append(kept)
            fields = {"writer": self._header.writer, "record": reader.records}
            _path_log.warning(reader.path, "damaged behind record %d; kept as %s", reader.records, kept, **fields)

    async def _begins_like(self, shard: str) -> bool:
        """Whether a shard of that name begins with the records of our journal."""
        ours = await in_thread(self._reader, shard)
        try:
            await in_thread(ours.open)
            async with open_reader(shard, storage=self._target, max_record_bytes=ANY_RECORD_BYTES) as reader:
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

    def _reader(self, shard: str) -> JournalReader:
        """Make a reader of a shard's file and that of its keys: whole ones in a spool, else the journal's."""
        folder, writer = self._folder, self._header.writer
        path = str(folder.path_of(shard))
        if not (self._spool and own_file(path)):
            path = str(folder.partial_of(shard))
        key = keys_key(with_maker(self._header.name, shard, writer))
        # Keys are published before the shard.
        keys = next(filter(own_file, (str(folder.path_of(key)), str(folder.partial_of(key)))), None)
        names = [*other_names(path, writer), *(other_names(keys, writer) if keys is not None else ())]
        compressed = bool(self._header.compression.type)
        return JournalReader(path, keys, compressed=compressed, other_names=names)


def _keep(path: str) -> str:
    """Give a damaged journal a second name, which no recovery removes; returns it."""
    kept = kept_path(path)
    with mapped_errors("keeping", kept):
        try:
            os.link(path, kept)
        except FileExistsError:
            if os.lstat(path).st_ino != os.lstat(kept).st_ino:  # else an earlier recovery has kept it
                kept = f"{kept}-{secrets.token_hex(4)}"
                os.link(path, kept)
    return kept


def _taken(target: Storage, shard: str) -> ConflictError:
    return ConflictError(
        f"{target.root}/{shard}: another writer has published shards of this name; what was acknowledged to this one "
        "stays in its unfinished files: 'asyncrec recover' with --abandon discards them"
    )
