"""A run contains the sorted keys of many shards, so that a look-up by key needs few requests even for many shards.

    magic                                       16 bytes: ``asyncrec keys 1`` and a newline
    blocks of `RUN_BLOCK` entries; the last may have fewer: the 16-byte digest of each key, then for each record the
        number of its shard in the run and its number in the shard, as two little-endian 32-bit numbers
    a tail, compressed by zlib: ``records`` of each shard (64 bits); the first 8 bytes of each block's first digest;
        ``keys_crc32c`` of each shard and the CRC32C of each block (32 bits each); the path of each shard, followed
        by a NUL

Entries are sorted by the first eight bytes of the digest, read as a little-endian number. A run is immutable. The
checkpoint that names the run records its size, its numbers of entries and shards, its CRC32C, and the size of its tail.
A look-up reads the tail once, and then one block per key. Each block has its own checksum. If a snapshot does not
contain a shard with the path, the record count and the keys checksum that the run states, the run's entries for that
shard are ignored. Therefore, no new run is needed when a shard is removed or replaced.

A run of contents has the same format, but with digests of bodies instead of keys. The checkpoint marks it as such.

A run takes 24 bytes per key. A look-up in a hash index would need the same number of requests, but hash indexes could
not be merged in bounded memory.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrec._framing.crc import crc32c
from asyncrec._numpy import np
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec._shards.manifest.texts import TextColumn
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"asyncrec keys 1\n"
# The number of entries that a look-up reads. These 12 KiB arrive in almost no time, even from a remote store.
RUN_BLOCK = 512
ENTRY_BYTES = KEY_BYTES + 8
# In a larger shard, record numbers do not fit into 32 bits, so its keys are always read from its own keys file.
MOST_RECORDS = (1 << 32) - 1

_NAME = re.compile(r"~keys-([0-9]{6,18})~[A-Za-z0-9]{1,64}\.run")
# A tail that would shrink by more than a factor of 256 is stored uncompressed. A shard takes at least 14 bytes before
# compression, and therefore at least 14/256 of a byte after it.
_MOST_RATIO = 256
_LEAST_SHARD = 14 / _MOST_RATIO


@dataclass(frozen=True, slots=True)
class KeyRun:
    """The description of a run in a checkpoint.

    Attributes:
        name: the name of the run's file, which is in the same folder as the checkpoint.
        bytes: the size of the file.
        crc32c: the checksum of the entire file.
        entries: the number of entries.
        shards: the number of shards whose keys the run contains.
        tail: the size of the tail in bytes.
        contents: whether the run contains digests of contents (`content_digest`) instead of keys.
    """

    name: str
    bytes: int
    crc32c: int
    entries: int
    shards: int
    tail: int
    contents: bool = False

    @property
    def begin_of_tail(self) -> int:
        """The offset of the tail in the file."""
        return self.bytes - self.tail

    def to_json(self) -> dict[str, Any]:
        said = asdict(self)
        if not self.contents:
            del said["contents"]
        return said

    @classmethod
    def from_json(cls, text: Any, name: str) -> KeyRun:
        """Parse and check the description of a run. ``name`` is the name of the checkpoint.

        Raises:
            ManifestError: the description is invalid.
        """
        numbers = ("bytes", "crc32c", "entries", "shards", "tail")
        if (
            not isinstance(text, dict)
            or text.keys() - {"contents"} != {"name", *numbers}
            or text.get("contents", True) is not True
            or run_number(text["name"]) is None
            or not all(type(text[each]) is int and 0 <= text[each] < 1 << 62 for each in numbers)
            or text["bytes"] != len(MAGIC) + ENTRY_BYTES * text["entries"] + text["tail"]
            or text["shards"] * _LEAST_SHARD > text["tail"]
        ):
            raise ManifestError(
                f"{name}: the checkpoint names an impossible run of keys, so it is damaged: {str(text)[:200]}"
            )
        return cls(**text)


def run_name(number: int, maker: str) -> str:
    """Return the name of a run made for the checkpoint ``number``."""
    return f"~keys-{number:06d}~{maker}.run"


def run_number(name: object) -> int | None:
    """Return the number of the checkpoint for which a run was made, from the run's name; `None` for other names."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else int(match[1])


class Entries(NamedTuple):
    """Entries that were read from a run, or are to be written to one.

    Attributes:
        digests: uint64 (n, 2): the first and the last eight bytes of each digest.
        shards: int64 (n,): the number of each record's shard.
        records: int64 (n,): the number of each record in its shard.
    """

    digests: NDArray[np.uint64]
    shards: NDArray[np.int64]
    records: NDArray[np.int64]

    def take(self, rows: Any) -> Entries:
        """Return the entries in these rows."""
        return Entries(self.digests[rows], self.shards[rows], self.records[rows])

    def sorted(self) -> Entries:
        """Return the same entries, sorted as in a run."""
        return self.take(np.argsort(self.digests[:, 0], kind="stable"))

    @classmethod
    def none(cls) -> Entries:
        """Return an empty `Entries` object."""
        return cls(np.empty((0, 2), np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def joined(cls, parts: list[Entries]) -> Entries:
        """Concatenate entries."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def encode(self) -> bytes:
        """Encode these entries as one block. The caller must not pass more than `RUN_BLOCK` entries."""
        places = np.stack([self.shards, self.records], axis=1).astype("<u4")
        return self.digests.astype("<u8", copy=False).tobytes() + places.tobytes()

    @classmethod
    def decode(cls, content: bytes) -> Entries:
        """Decode one block."""
        count = len(content) // ENTRY_BYTES
        digests = np.frombuffer(content, "<u8", 2 * count).reshape(-1, 2)
        places = np.frombuffer(content, "<u4", 2 * count, KEY_BYTES * count).reshape(-1, 2).astype(np.int64)
        return cls(digests, places[:, 0], places[:, 1])


@dataclass(frozen=True, slots=True)
class RunTail:
    """The tail of a run.

    Attributes:
        paths: the paths of the run's shards, in ascending order.
        keys_crc32c, records: uint32 and int64 (shards,): the keys checksum and the record count of each shard.
        first: uint64 (blocks,): the first eight bytes of each block's first digest.
        crc32c: uint32 (blocks,): the checksum of each block.
    """

    paths: TextColumn
    keys_crc32c: NDArray[np.uint32]
    records: NDArray[np.int64]
    first: NDArray[np.uint64]
    crc32c: NDArray[np.uint32]

    def encode(self) -> bytes:
        """Encode the tail."""
        content = b"".join(
            (
                self.records.astype("<i8").tobytes(),
                self.first.astype("<u8").tobytes(),
                self.keys_crc32c.astype("<u4").tobytes(),
                self.crc32c.astype("<u4").tobytes(),
                self.paths.encode(0, len(self.paths)),
            )
        )
        deflated = zlib.compress(content)
        return deflated if len(content) <= _MOST_RATIO * len(deflated) else zlib.compress(content, 0)

    @classmethod
    def decode(cls, content: bytes, run: KeyRun) -> RunTail:
        """Decode the tail of a run.

        Raises:
            ManifestError: the tail is damaged, or does not match the checkpoint.
        """
        inflating = zlib.decompressobj()
        try:
            raw = inflating.decompress(content, _MOST_RATIO * len(content))
        except zlib.error as error:
            raise ManifestError(
                f"{run.name}: the run of keys is damaged: its tail cannot be decompressed: {error}"
            ) from error
        blocks = -(-run.entries // RUN_BLOCK)
        numbers, texts = 12 * (run.shards + blocks), raw[12 * (run.shards + blocks) :]
        paths = TextColumn.decode(texts)
        whole = inflating.eof and not inflating.unused_data and len(raw) >= numbers and texts[-1:] in (b"", b"\0")
        if not whole or len(paths) != run.shards:
            raise ManifestError(f"{run.name}: the run of keys is damaged: its tail does not match the checkpoint")
        records, first, keys_crc32c, of_blocks = (
            np.frombuffer(raw, of, count, at).astype(of[1:])
            for of, count, at in (
                ("<i8", run.shards, 0),
                ("<u8", blocks, 8 * run.shards),
                ("<u4", run.shards, 8 * (run.shards + blocks)),
                ("<u4", blocks, 12 * run.shards + 8 * blocks),
            )
        )
        if (first[1:] < first[:-1]).any():
            raise ManifestError(f"{run.name}: the run of keys is damaged: the blocks of its tail are out of order")
        return cls(paths=paths, keys_crc32c=keys_crc32c, records=records, first=first, crc32c=of_blocks)

    def blocks_of(self, first: int) -> tuple[int, int]:
        """Return the range ``[low, high)`` of blocks that may contain digests whose first eight bytes are ``first``."""
        wanted = np.uint64(first)
        low = max(int(self.first.searchsorted(wanted, "left")) - 1, 0)
        return low, int(self.first.searchsorted(wanted, "right"))

    def check(self, content: bytes, low: int, high: int, run: KeyRun) -> list[Entries]:
        """Decode and check blocks ``[low, high)``.

        Raises:
            ManifestError: the blocks are damaged.
        """
        size = RUN_BLOCK * ENTRY_BYTES
        if len(content) != min(run.begin_of_tail - len(MAGIC), high * size) - low * size:
            raise ManifestError(f"{run.name}: the run of keys is truncated")
        found = []
        for number in range(low, high):
            block = content[(number - low) * size : (number - low + 1) * size]
            if crc32c(block) != self.crc32c[number]:
                raise ManifestError(f"{run.name}: the run of keys is damaged: a block does not match its checksum")
            entries = Entries.decode(block)
            if (entries.shards >= run.shards).any() or (entries.records >= self.records[entries.shards]).any():
                raise ManifestError(f"{run.name}: the run of keys is damaged: a key refers to an impossible record")
            found.append(entries)
        return found


def range_of_blocks(low: int, high: int, run: KeyRun) -> tuple[int, int]:
    """Return the byte range of blocks ``[low, high)``."""
    size = RUN_BLOCK * ENTRY_BYTES
    return len(MAGIC) + low * size, min(len(MAGIC) + high * size, run.begin_of_tail)
