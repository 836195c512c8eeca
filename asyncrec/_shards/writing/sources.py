"""`Sources` accepts records from message queues, along with their positions, and stores each record only once.

A consumer that restarts after a crash reads some messages again. It could write them again, and the duplicates could be
found by a key. Instead, each record comes with a source and a position in that source, and a record is dropped unless
its position is after the last accepted one. All records of a source go through one write queue, so they are stored and
committed in the order of their positions. All records of the same position become durable together, because they are in
one batch, or in adjacent batches that are not separated by a flush or by the end of a shard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import as_record, check_size
from asyncrec._records.writing.intake import Intake
from asyncrec._records.writing.record_encoder import Record, RecordEncoder
from asyncrec._records.writing.write_batch import BATCH_BYTES, BATCH_RECORDS, Key, WriteBatch, check_list, framed
from asyncrec._shards.manifest.progress import NO_POSITION
from asyncrec._shards.ownership.sources import check_position, check_source
from asyncrec._shards.writing.keys import NO_KEY, KeySet, digest_of
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.source_turns import Source, refuse
from asyncrec.errors import ArgumentValueError, ConflictError


class Sources:
    """The sources of one writer.

    Attributes:
        skipped: the number of records that were dropped because their position or their key had already been accepted.
    """

    def __init__(
        self,
        shards: OpenShards,
        tickets: Callable[[int], int],
        max_record_bytes: int,
        keys: KeySet | None,
        encoder: RecordEncoder | None,
    ) -> None:
        """``tickets`` is called with the number of tickets to reserve, which may be 0, and returns the first one."""
        self.skipped = 0
        self._shards = shards
        self._tickets = tickets
        self._max_record_bytes = max_record_bytes
        self._keys = keys
        self._encoder = encoder
        self._budget = shards.budget
        self._intake = Intake(shards.budget, shards.check)
        self._turns = shards.sources
        self._source_of = self._turns.get
        if keys is not None:
            self._turns.forget_keys = keys.forget

    async def write(
        self,
        records: Iterable[Record],
        source: str | None,
        position: int | None,
        *,
        key: str | bytes | None = None,
        partition: object = None,
    ) -> int:
        """Write the records of one position. Return a ticket that covers all accepted positions of the source.

        If the call is cancelled or raises an error, none of the records is written.

        Raises:
            TypeError, ValueError: the source or the position is not valid, or contradicts the other arguments.
        """
        if source is None or position is None:
            raise ArgumentValueError("source= and position= belong together: pass both, or neither")
        source, position = check_source(source), check_position(position)
        check_list(records)
        if partition is not None:
            raise ArgumentValueError("source= cannot be combined with partition=, because the source chooses the shard")
        return await self._in_turn(source, partial(self._write, records, source, position, key))

    async def take(self, source: str) -> int | None:
        """Take the source's turn, unless the writer already has it. Return the source's last position."""

        async def position(found: Source) -> int:
            return found.position

        last = await self._in_turn(check_source(source), position, takes=True)
        return None if last == NO_POSITION else last

    async def _in_turn(self, source: str, call: Callable[[Source], Awaitable[int]], *, takes: bool = False) -> int:
        """Call ``call`` with the source after all earlier calls for it have finished. Take the source if necessary.

        If the writer has lost the source, it is taken again only if ``takes`` is true. Otherwise, a caller could
        release the source and then write its current message. The messages between the stored position and this message
        would be missing, and no later call would store them.
        """
        while True:
            found = self._source_of(source) or self._turns.begin(source)
            found.delays += 1
            try:
                async with found.lock:  # positions are accepted in the order of the calls
                    if self._source_of(source) is not found:  # the source was released in the meantime
                        continue
                    refuse(found)
                    self._shards.check()
                    if not found.turn:
                        if source in self._turns.to_take and not takes:
                            raise ConflictError(
                                f"{self._shards.path}: another writer has had the source {source!r} since; call "
                                "take(), and continue after the position that it returns"
                            )
                        await self._turns.open(source, found)
                        self._turns.to_take.discard(source)
                    return await call(found)
            finally:
                found.delays -= 1

    async def _write(
        self, records: Iterable[Record], source: str, position: int, key: str | bytes | None, found: Source
    ) -> int:
        if position <= found.position:
            self.skipped += len(list(records))
            return found.ticket
        if taken := await self._taken(records, key):
            await self._append(found, position, taken)
        else:
            self._turns.ahead[source] = found
        found.position = position
        return found.ticket

    async def _taken(self, records: Iterable[Record], key: str | bytes | None) -> list[tuple[bytes, bytes | None]]:
        """Return the records in the form in which they are stored, each with the digest of its key, if it has one."""
        taken: list[tuple[bytes, bytes | None]] = []
        for record in records:
            data, own = (
                (record if type(record) is bytes else await as_record(record), key)
                if self._encoder is None
                else await self._encoder.take(record, key)
            )
            check_size(len(data), self._max_record_bytes, self._shards.path)
            taken.append((data, None if own is None else digest_of(own)))
        return taken

    def _without_known(self, taken: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        """Return the records that have no key, or a key that was not written before."""
        keys = self._keys
        if keys is None:
            return taken
        seen: set[bytes] = set()
        kept = []
        for record, digest in taken:
            if digest is None or not (digest in keys or digest in seen):
                kept.append((record, digest))
            if digest is not None:
                seen.add(digest)
        return kept

    async def _append(self, source: Source, position: int, taken: list[tuple[bytes, bytes | None]]) -> None:
        """Append records to the source's queue: all of them, or none if an error is raised."""
        budget = self._budget
        size = _size(taken)
        await self._intake.take(size)
        try:
            while True:
                batches: list[WriteBatch] = []
                kept = self._without_known(taken)
                records = [record for record, _ in kept]
                keyed = any(digest is not None for _, digest in kept)
                if _size(kept) <= BATCH_BYTES and len(kept) <= BATCH_RECORDS:  # then no record is large
                    break
                batches = await in_thread(framed, records, [each or NO_KEY for _, each in kept] if keyed else None)
                self._shards.check()
                if len(self._without_known(kept)) == len(kept):  # otherwise another task has written one of the keys
                    break
            refuse(source)
        except BaseException:
            budget.give(size)
            raise
        # There must be no await from here on, so that no other task runs in between.
        if len(kept) < len(taken):
            self.skipped += len(taken) - len(kept)
            budget.give(size - _size(kept))
            source.ticket = self._tickets(0) - 1  # this covers the earlier records with the same keys
        if not kept:
            self._turns.ahead[source.name] = source
            return
        if self._keys is not None:
            for _, digest in kept:
                if digest is not None:
                    self._keys.add(digest)
        first = self._tickets(len(kept))
        source.ticket = first + len(kept) - 1
        if batches:
            now = anyio.current_time()
            source.queue.seal()
            source.position = position
            for batch in batches:
                batch.first, batch.last, batch.time = first, first + batch.count - 1, now
                batch.goes_on = batch is not batches[-1]
                batch.begin_run(source)
                first += batch.count
            batches[-1].end_runs()
            source.queue.append_sealed(*batches)
        else:
            keys: list[Key] | None = [bytearray(each or NO_KEY) for _, each in kept] if keyed else None
            source.queue.append_many(records, _size(kept), first, keys=keys, source=source, position=position)


def no_source(name: str) -> Source | None:
    """Return `None`.

    This replaces `SourceTurns.get` in a writer that must encode records before it appends them to a source's queue.
    """
    return None


def _size(records: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Return the total size in bytes of the records' frames."""
    return sum(len(record) + FRAME_OVERHEAD for record, _ in records)
