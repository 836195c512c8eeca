"""`SeenWriter` is the sharded writer that is used with ``seen=``. It stores a page as a revisit if its body is known.

Suppose a revisit is on the disk, but the body that it refers to, which goes to a different shard, is not. A crash would
leave the revisit without a body. Therefore, until a body is committed, its revisits are written to the same queue,
after the body.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import NamedTuple

import anyio

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import LARGE_EXAMPLE, as_record, check_size
from asyncrec._records.writing.record_encoder import Record, RecordEncoder
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.writing.keys import NO_KEY, KeySet, digest_of, shared_digests
from asyncrec._shards.writing.known_contents import Body, Seen
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.seen_bodies import Page, SeenBodies
from asyncrec._shards.writing.writer import Partition, ShardedWriter
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.pages._revisits import repeating

# The number of bodies to look up at once. Switching to a worker thread takes as long as about a hundred look-ups.
_TOGETHER = 256


@asynccontextmanager
async def open_seen_writer(
    shards: OpenShards,
    longest: int,
    seen: Seen,
    *,
    partition_by: Callable[[bytes], Partition] | None,
    keys: KeySet | None,
    encoder: RecordEncoder | None,
) -> AsyncIterator[SeenWriter]:
    """Open a writer that knows all bodies in the snapshot that its job started from.

    It leaves no temporary files behind.

    Raises:
        TypeError, ValueError: ``seen`` is neither the name of a feature nor a function, or the records are not pages.
        DatasetError: a keys file does not match its shard.
    """
    bodies = SeenBodies(shards.path, seen, encoder)
    try:
        await bodies.load(shards.job.store, shards.job.header.name, shards.job.before)
        yield SeenWriter(shards, longest, partition_by=partition_by, keys=keys, bodies=bodies)
    finally:
        await surely_in_thread(bodies.contents.close)


class _Choice(NamedTuple):
    """The form in which a page will be stored.

    Attributes:
        page: the page itself, or the revisit that is stored instead of it.
        digest: the digest of the page's body or, for a revisit, of the body that it refers to; 16 zero bytes if it is
            unknown.
        strong: the collision-resistant digest of the page's body; `None` if later pages may not refer to this page.
        known: the body with this digest that the writer had already stored when it made the choice, or `None`.
        queue: the only queue to which the page may be written; `None` if it may go to any queue.
    """

    page: Page
    digest: bytes
    strong: str | None = None
    known: Body | None = None
    queue: WriteQueue | None = None


class SeenWriter(ShardedWriter):
    """The writer of a data set of pages, which stores each body only once."""

    def __init__(
        self,
        shards: OpenShards,
        max_record_bytes: int,
        *,
        partition_by: Callable[[bytes], Partition] | None,
        keys: KeySet | None,
        bodies: SeenBodies,
    ) -> None:
        super().__init__(shards, max_record_bytes, partition_by=partition_by, keys=keys, encoder=bodies.encoder)
        self._pages, self._bodies = bodies.encoder, bodies

    async def write(
        self,
        record: Record,
        *,
        key: str | bytes | None = None,
        partition: Partition | None = None,
        source: str | None = None,
        position: int | None = None,
    ) -> int:
        self._refuse_source(source, position)
        page = await self._page(record)
        key = self._key(page, key)
        digest = digest_of(key)
        whole = False
        while True:
            if self._keys is not None and digest in self._keys:
                self._duplicates += 1
                return self._tickets
            choice = await self._choice(page, key, whole=whole)
            data, _ = await self._pages.take(record if choice.page is page else choice.page, key)
            check_size(len(data), self.max_record_bytes, self.path)
            queue = choice.queue
            if partition is not None or self._partition_by is not None:
                queue = self._chosen_queue(data, partition)
                if choice.queue not in (None, queue):
                    whole = True  # the body is in another partition's shard, and not yet durable
                    continue
            size = len(data) + FRAME_OVERHEAD
            await self._intake.take(size)
            frames = await self._intake.frame_large(data) if len(data) > self._longest else None
            # Another task may have written the same body, or the same key, while this one waited.
            known = None if choice.strong is None or whole else self._bodies.contents.new(choice.digest)
            if known is not choice.known or (self._keys is not None and not self._keys.add(digest)):
                self._budget.give(size)
            else:
                break
        # There must be no await from here on, so that no other task runs in between.
        queue = queue or next(self._queues_in_turn)
        ticket = self._next_tickets(1)
        both = digest + choice.digest
        if frames is not None:
            now = anyio.current_time()
            queue.append_sealed(WriteBatch.of_large(data, frames, ticket=ticket, time=now, digest=both))
        else:
            queue.append(data, ticket, bytearray(both))
        if choice.strong is not None:
            body = Body.of(page, choice.strong, ticket, self._queues.index(queue))
            self._bodies.contents.add(choice.digest, body)
        return ticket

    async def write_many(
        self,
        records: Iterable[Record],
        *,
        partition: Partition | None = None,
        source: str | None = None,
        position: int | None = None,
    ) -> int:
        self._refuse_source(source, position)
        if isinstance(records, Mapping | bytes | bytearray | memoryview | str):
            return await super().write_many(records, partition=partition)  # this raises the error
        left = iter(records)
        while some := list(islice(left, _TOGETHER)):
            pages = [await self._page(record) for record in some]
            digests = [self._bodies.digest_of(page, self._key(page, None)) for page in pages]
            await self._bodies.contents.ask([each for each in digests if each is not None])
            for page in pages:
                await self.write(page, partition=partition)
        return self._tickets

    def _refuse_source(self, source: str | None, position: int | None) -> None:
        if source is not None or position is not None:
            raise ArgumentValueError(f"{self.path}: a writer with seen= takes no source= and position=")

    async def _choice(self, page: Page, key: str | bytes, *, whole: bool) -> _Choice:
        digest = self._bodies.digest_of(page, key)
        if digest is None:
            return _Choice(page, self._bodies.digest_of_revisit(page) or NO_KEY)
        known = None if whole else self._bodies.contents.new(digest)
        strong = await self._bodies.strong(page)
        body = None if whole else await self._bodies.find(digest, strong)
        if body is None:
            return _Choice(page, digest, strong, known)
        revisit = repeating(page, (body.url, body.date, body.record_id), body.digest)
        waits = body.ticket and self._acknowledgements.level_of(body.ticket) != "committed"
        return _Choice(revisit, shared_digests(digest)[1], queue=self._queues[body.queue] if waits else None)

    async def _page(self, record: Record) -> Page:
        """Return a record as a page, decoding it if necessary."""
        if isinstance(record, Mapping):
            return record
        data = await as_record(record)
        if len(data) > LARGE_EXAMPLE:
            return await in_thread(self._bodies.page_of, data)
        return self._bodies.page_of(data)

    def _key(self, page: Page, key: str | bytes | None) -> str | bytes:
        """Return the key of a page, or raise an error if the page has no key."""
        found = key if key is not None else page.get(self._pages.key_feature or "")
        if found is None:
            raise ArgumentValueError(
                f"{self.path}: a page has no key, which a writer with seen= needs; pass key=, or open the writer with "
                "key_feature='url'"
            )
        if not isinstance(found, str | bytes):
            raise ArgumentTypeError(f"a key must be a str or bytes, not {type(found).__name__}")
        return found
