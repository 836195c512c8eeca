"""`copy_object` copies and verifies one object. `is_there` and `is_same` check whether the target already has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from asyncrec.errors import IntegrityError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._checksums import check_sent, stored_crc32c
from asyncrec.storage._chunk_writer import ChunkWriter, ResumingSource
from asyncrec.storage._url import join

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """One object to copy.

    Attributes:
        source, target: the keys of the object in the two stores.
        size, crc32c: the size and checksum that a manifest gives, or `None`.
        listed: whether the manifest at the target already names the object.
    """

    source: str
    target: str
    crc32c: int | None
    size: int | None = None
    listed: bool = False


async def is_there(store: Storage, item: Item) -> Literal["no", "by size", "same"]:
    """Return whether the target has an object that its manifest lists, without reading the object.

    The result is ``"by size"`` if only the sizes could be compared, because a checksum is unknown.
    """
    try:
        there = await store.head(item.target)
    except ObjectNotFoundError:
        return "no"
    if item.size not in (None, there.size):
        return "no"
    if item.crc32c is None or there.crc32c is None:
        return "by size"
    return "same" if item.crc32c == there.crc32c else "no"


async def is_same(source: Storage, store: Storage, item: Item, *, overwrite: bool) -> bool:
    """Return whether the target already has the object.

    Raises:
        ObjectExistsError: the target has a different object with this key, and ``overwrite`` is false.
    """
    try:
        there = await store.head(item.target)
    except ObjectNotFoundError:
        return False
    here = await source.head(item.source)
    expected = here.crc32c if item.crc32c is None else item.crc32c
    if here.size == there.size:
        # Not every store keeps checksums. Reading both objects takes no longer than copying the object again.
        stored = await stored_crc32c(store, item.target) if there.crc32c is None else there.crc32c
        if stored == (await stored_crc32c(source, item.source) if expected is None else expected):
            return True
    if overwrite:
        return False
    raise ObjectExistsError(
        f"{join(store.root, item.target)}: a different file exists: its size is {there.size:,} bytes, not "
        f"{here.size:,}, or its checksum differs"
    ).with_remedy("pass overwrite=True to replace it", command="use --overwrite to replace it")


async def copy_object(
    source: Storage, store: Storage, item: Item, advance: Callable[[int], None], *, exclusive: bool
) -> int:
    """Copy one object and return its size in bytes."""
    async with ResumingSource(source, item.source) as reading:
        async with store.open_sink(item.target, exclusive=exclusive) as sink:
            chunks = ChunkWriter(sink)
            while block := await reading.receive(_BLOCK):
                await chunks.write([block])
                advance(len(block))
            expected = reading.info.crc32c if item.crc32c is None else item.crc32c
            if expected is not None and expected != chunks.crc32c:
                raise IntegrityError(
                    f"{join(source.root, item.source)}: the object is damaged (CRC32C {chunks.crc32c:08x}, expected "
                    f"{expected:08x}) and was not copied; to save its intact records, run 'asyncrec repair'"
                )
            await chunks.finish()
    path = join(store.root, item.target)
    try:
        check_sent(path, sink.published, size=chunks.size, crc32c=chunks.crc32c, then="it was removed")
    except IntegrityError:
        await store.delete(item.target)
        raise
    return chunks.size
