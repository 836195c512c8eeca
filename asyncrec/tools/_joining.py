"""Choose which shards to join: runs of small neighbouring shards.

If every call joined all shards smaller than the limit, a data set that grows by 20 MB each night would be rewritten
each night: 20 MB, 40 MB, 60 MB and so on. Therefore, a shard counts as small only if it is smaller than half the limit.
If a run would fill less than half a shard, its first or last shard is left out if that shard is larger than all others
in the run together. Most bytes are then rewritten only if the new shard is at least twice as large as the old one. A
joined shard is not joined again until shards are added.

All functions in this module are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from asyncrec._shards.manifest.names import maker_of
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.tools._selection import SelectedShard

# The maximum size of a piece. If the process is killed, the work on at most one piece is lost. Joining a piece needs
# that much additional storage, and a kilobyte of memory for the entry of each joined shard.
_PIECE_SHARDS = 1 << 14
_PIECE_BYTES = 1 << 30

Run = list[SelectedShard]


@dataclass(frozen=True, slots=True)
class Kind:
    """The options shared by all shards of one job: their compression, and whether they have an index."""

    compression: str
    index: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """Shards with consecutive names that are rewritten together. Each group becomes one new shard."""

    kind: Kind
    groups: list[Run]

    @property
    def shards(self) -> Run:
        """The shards of all groups."""
        return [shard for group in self.groups for shard in group]

    @property
    def bytes(self) -> int:
        return sum(shard.size for shard in self.shards)


def planned(
    shards: Sequence[SelectedShard],
    *,
    max_bytes: int,
    compression: str | None,
    concerned: Callable[[SelectedShard], bool] = lambda shard: False,
    stays: Callable[[SelectedShard], bool] = lambda shard: False,
) -> list[Piece]:
    """Divide the work on the shards of a data set into pieces, in the order of the shards' names.

    Args:
        max_bytes: the maximum size of a new shard.
        compression: the compression of all new shards; if `None`, new shards have the compression of the old shards.
        concerned: returns whether a shard must be rewritten.
        stays: returns whether a shard must not be rewritten.
    """

    def kind_of(entry: ShardEntry) -> Kind:
        return Kind(entry.compression if compression is None else compression, entry.index is not None)

    pieces: list[Piece] = []
    size = count = 0
    for kind, group in _groups(shards, kind_of, concerned=concerned, stays=stays, max_bytes=max_bytes):
        more = sum(shard.size for shard in group)
        if not pieces or pieces[-1].kind != kind or size + more > _PIECE_BYTES or count + len(group) > _PIECE_SHARDS:
            pieces.append(Piece(kind, []))
            size = count = 0
        pieces[-1].groups.append(group)
        size, count = size + more, count + len(group)
    return pieces


def _groups(
    shards: Sequence[SelectedShard],
    kind_of: Callable[[ShardEntry], Kind],
    *,
    concerned: Callable[[SelectedShard], bool],
    stays: Callable[[SelectedShard], bool],
    max_bytes: int,
) -> Iterator[tuple[Kind, Run]]:
    """Yield each group of shards to join into one new shard, with the new shard's options."""
    run: Run = []
    size, kind = 0, None

    def closed() -> Iterator[tuple[Kind, Run]]:
        if kind is not None:
            for group in _worth(run, must, full=2 * size >= max_bytes):
                yield kind, group

    def must(shard: SelectedShard) -> bool:
        assert kind is not None, "a run has a kind"
        assert shard.entry is not None, "a manifest lists the shard"
        return shard.entry.compression != kind.compression or concerned(shard)

    for shard in shards:
        entry = shard.entry
        known = entry is not None and shard.dataset is not None and maker_of(shard.dataset.name, entry.path) is not None
        found = kind_of(entry) if entry is not None and known and not stays(shard) else None
        if found != kind or size + shard.size > max_bytes or len(run) == _PIECE_SHARDS:
            yield from closed()
            run, size, kind = [], 0, found
        if found is None:
            continue
        if 2 * shard.size < max_bytes or must(shard):
            run.append(shard)
            size += shard.size
        else:
            yield from closed()
            run, size = [], 0
    yield from closed()


def _worth(run: Run, must: Callable[[SelectedShard], bool], *, full: bool) -> Iterator[Run]:
    """Yield the part of a run that is worth joining, and each other shard that must be rewritten, as its own group."""
    low, high, total = 0, len(run), sum(shard.size for shard in run)
    while not full and high - low > 1 and 2 * run[low].size > total:
        total -= run[low].size
        low += 1
    while not full and high - low > 1 and 2 * run[high - 1].size > total:
        high -= 1
        total -= run[high].size
    if high - low < 2:
        low = high = len(run)
    yield from ([shard] for shard in run[:low] if must(shard))
    if high > low:
        yield run[low:high]
    yield from ([shard] for shard in run[high:] if must(shard))
