"""`SeenBodies` finds a stored page with the same body as a new page, in the data set or among the writer's own pages.

It is not enough to check whether the digest of a body is known. If the record with that body has since been deleted, or
if the digest was forged, storing a revisit would lose the page's body. The stored record is therefore read, once for
each body, and the bodies are compared by a collision-resistant digest, which is also kept for each body that the writer
stores itself. If the record cannot be read for any reason, the new page is stored in full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

from asyncrec._concurrency.lru_cache import AsyncLRUCache
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._path_log import PathLog
from asyncrec._records.index import RecordIndex, parse_index
from asyncrec._records.position import Position
from asyncrec._records.reading.reader import open_reader_at
from asyncrec._records.record_size import LARGE_EXAMPLE
from asyncrec._records.writing.record_encoder import RecordEncoder
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.keys import content_digest, shared_digests
from asyncrec._shards.writing.known_contents import Body, KnownContents, Place, Seen, check_seen
from asyncrec.errors import ArgumentTypeError, DatasetError, FormatError, StorageError
from asyncrec.example._codec import decode_example
from asyncrec.example._schema import Schema
from asyncrec.pages import is_revisit, page_key
from asyncrec.pages._revisits import may_share
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

Page: TypeAlias = Mapping[str, Any]

_path_log = PathLog("asyncrec.shards")
# The maximum size in bytes of all cached shard indexes together, and the maximum number of cached bodies.
_INDEXES, _BODIES = 8 << 20, 1 << 12
# The maximum size in bytes of a line of an index. A line has three numbers.
_MOST_LINE = 64


class SeenBodies:
    """The bodies that a writer has found or stored.

    Attributes:
        contents: the locations of the bodies.
        encoder: the encoder of the pages.
    """

    def __init__(self, path: str, seen: Seen, encoder: RecordEncoder | None) -> None:
        """Check the options, and create an object without any bodies.

        ``seen`` is the name of the feature that distinguishes bodies, or a function that takes a page and returns such
        a value.

        Raises:
            TypeError, ValueError: ``seen`` is neither, or the records are not pages.
        """
        check_seen(path, seen, None if encoder is None else encoder.schema)
        assert encoder is not None, "check_seen requires a schema"
        assert encoder.schema is not None, "check_seen requires a schema"
        self.contents = KnownContents()
        self.encoder = encoder
        self._path = path
        self._seen = seen
        self._schema = encoder.schema
        self._folder: Storage
        self._before: Manifest | None = None
        self._indexes: AsyncLRUCache[str, RecordIndex | None] = AsyncLRUCache(_INDEXES, _weight)
        self._bodies: AsyncLRUCache[bytes, Body | None] = AsyncLRUCache(_BODIES, lambda _: 1)

    async def load(self, folder: Storage, name: str, before: Manifest | None) -> None:
        """Load the digests of all bodies in a snapshot.

        Raises:
            DatasetError: a keys file does not match its shard.
        """
        self._folder, self._before = folder, before
        if before is not None:
            await self.contents.load(folder, name, before)

    def page_of(self, record: bytes) -> Page:
        """Decode the page in a record. Blocks if the record is large.

        Raises:
            ExampleError: the record does not fit the schema.
        """
        return page_in(record, self._schema)

    def identity(self, page: Page) -> str | bytes | None:
        """Return the value that distinguishes a page's body from others; `None` if the page has no such value."""
        value = page.get(self._seen) if isinstance(self._seen, str) else self._seen(page)
        if value is not None and not isinstance(value, str | bytes):
            raise ArgumentTypeError(f"{self._path}: seen must return str, bytes or None, not {type(value).__name__}")
        return value or None

    def digest_of(self, page: Page, key: str | bytes) -> bytes | None:
        """Return the digest of a page's body, or `None` if the page cannot be a revisit or the target of one.

        Readers use the page's key to find the body of a revisit, so ``key`` must be the `page_key` of a GET without a
        body.
        """
        if not page.get("content") or not may_share(page) or "url" not in page or page.get("method", "GET") != "GET":
            return None
        if (key.encode() if isinstance(key, str) else key) != page_key({"url": page["url"]}).encode():
            return None
        identity = self.identity(page)
        return None if identity is None else content_digest(identity)

    def digest_of_revisit(self, page: Page) -> bytes | None:
        """Return the digest that links a page that is already a revisit to its body; `None` if it is unknown."""
        if not is_revisit(page) or not isinstance(self._seen, str):
            return None
        identity = self.identity(page)
        return None if identity is None else shared_digests(content_digest(identity))[1]

    async def find(self, digest: bytes, strong: str) -> Body | None:
        """Return the stored body that has both digests, or `None` if no readable record has it."""
        found = await self.contents.find(digest)
        if isinstance(found, Place):
            place = found
            found = await self._bodies.get(digest, lambda: self._read(place, digest))
        return found if found is not None and found.strong == strong else None

    async def strong(self, page: Page) -> str:
        """Return the collision-resistant digest of a page's content; an empty string if ``seen`` is a function."""
        if not isinstance(self._seen, str):
            return ""
        content = page["content"]
        return await in_thread(_strong, content) if len(content) > LARGE_EXAMPLE else _strong(content)

    async def _read(self, place: Place, digest: bytes) -> Body | None:
        assert self._before is not None, "places come from this snapshot"
        entry = self._before.shards[place.row]
        try:
            record = await self._record(entry, place.record)
            stored = await in_thread(self.page_of, record)
        except (FormatError, StorageError, DatasetError, ValueError) as error:
            path = join(self._folder.root, entry.path)
            _path_log.warning(path, "a body that was seen before cannot be read, so it is stored again: %s", error)
            return None
        if self.digest_of(stored, page_key(stored)) != digest:
            return None
        return Body.of(stored, await self.strong(stored))

    async def _record(self, entry: ShardEntry, number: int) -> bytes:
        """Read one record of a shard.

        Raises:
            FormatError, StorageError, DatasetError: the record cannot be read.
        """
        index = await self._indexes.get(entry.path, lambda: self._index(entry))
        if index is None:
            raise DatasetError(f"{entry.path}: the shard has no matching index")
        reader = await open_reader_at(
            self._folder,
            entry.path,
            Position(*index.beginning(number), number),
            path=join(self._folder.root, entry.path),
            max_record_bytes=entry.max_record_bytes,
            read_ahead=0,
        )
        try:
            batch = await reader.next_batch()
        finally:
            await reader.aclose()
        if batch is None:
            raise DatasetError(f"{entry.path}: the shard has fewer records than its index says")
        return batch.records[0]

    async def _index(self, entry: ShardEntry) -> RecordIndex | None:
        if entry.index is None:
            return None
        text = await self._folder.get(entry.index.path, max_bytes=_MOST_LINE * (entry.records + 1))
        if await in_thread(crc32c, text) != entry.index.crc32c:
            return None
        index = await in_thread(parse_index, text)
        if len(index) != entry.records:
            return None
        return index.as_one_member() if entry.compression == "ZLIB" else index


def page_in(record: bytes, schema: Schema) -> dict[str, Any]:
    """Decode the page in a record, including features that the schema allows but does not name. Blocks.

    Raises:
        ExampleError: the record does not fit the schema.
    """
    page = schema.decode(record)
    if schema.allow_extra:
        page |= {name: values for name, values in decode_example(record).items() if name not in schema.features}
    return page


def _strong(content: bytes) -> str:
    """Return a digest of the content that, unlike SHA-1, is collision-resistant."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def _weight(index: RecordIndex | None) -> int:
    return 1000 if index is None else index.nbytes + 1000
