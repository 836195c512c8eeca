"""Keep the body of a deleted page if revisits share it, whatever their keys are.

Deleting only the page would leave its revisits without a body. Instead, the body moves to the earliest committed
revisit that remains, and that revisit becomes a page. The move is committed before anything is deleted, so if the
process is killed in between, the body is stored twice but not lost. The other revisits do not change, because readers
find the body by its digest. With `WithContents`, all records that share a body with a deleted record are deleted too,
so no body has to move.

Records that share a body are found by the digests stored next to their keys, so only records that change are read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._shards.manifest.origins import CommitOrder
from asyncrec._shards.writing.keys import NO_KEY, content_digest, shared_digests
from asyncrec._shards.writing.known_contents import load_digests
from asyncrec._shards.writing.seen_bodies import page_in
from asyncrec.errors import ArgumentValueError
from asyncrec.example._schema import Schema
from asyncrec.pages import is_revisit
from asyncrec.pages._revisits import resolved
from asyncrec.tools._forgotten import ByDigests, Found
from asyncrec.tools._selection import SelectedShard, Selection

# The maximum size of a piece. Its pages stay in memory until their shards are written.
_PIECE_BYTES = 64 << 20
_PIECE_SHARDS = 256


class Finder(Protocol):
    """An object that finds the records to delete."""

    def find(self, selection: Selection, shards: Sequence[SelectedShard]) -> AsyncGenerator[Found]: ...

    def end(self) -> None: ...


class WithContents:
    """A finder that also finds all records that share a body with a record found by ``finder``."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._digests: set[bytes] = set()

    async def find(self, selection: Selection, shards: Sequence[SelectedShard]) -> AsyncGenerator[Found]:
        """Yield every shard with the numbers of the records to delete from it. Raises whatever ``finder`` raises."""
        found: dict[str, NDArray[np.int64]] = {}
        async with aclosing(self._finder.find(selection, shards)) as chosen:
            async for shard, records in chosen:
                if len(records):
                    found[shard.key] = records
                    for digest in await _contents_of(selection, shard, records):
                        if digest != NO_KEY:
                            self._digests.update(shared_digests(digest))
        async with aclosing(_having(selection, shards, self._digests)) as sharing:
            async for shard, records in sharing:
                own = found.get(shard.key)
                yield shard, records if own is None else np.union1d(own, records)

    def end(self) -> None:
        """End the search of ``finder`` after all shards have been examined."""
        self._finder.end()


class _Place(NamedTuple):
    """Where a record is: its shard, its number within the shard, and its number within the selection."""

    shard: SelectedShard
    record: int
    number: int


@dataclass(slots=True)
class Piece:
    """The bodies moved by one commit.

    Attributes:
        shards: the shards whose revisits receive the bodies.
        moved: the new pages with their digests, keyed by shard and then by the record's number within the shard.
    """

    shards: list[SelectedShard] = field(default_factory=list)
    moved: dict[str, dict[int, tuple[bytes, bytes]]] = field(default_factory=dict)


def has_contents(selection: Selection, *, everywhere: bool = False) -> bool:
    """Return whether any (with ``everywhere``, every) shard with keys also has content digests. Blocks."""
    lists = [dataset.manifest.shards for dataset in selection.datasets]
    having = [shards.with_contents[shards.keyed] for shards in lists]
    return all(each.all() for each in having) if everywhere else any(each.any() for each in having)


async def next_move(selection: Selection, finder: Finder, shards: Sequence[SelectedShard]) -> Piece | None:
    """Return the next bodies to move before deleting the records that ``finder`` finds in ``shards``.

    Return `None` if no body has to move.

    Raises:
        ValueError: a shared body is not identified by its page's digest, so readers could not find it after a move.
        Other errors: whatever the finder or reading the pages raises.
    """
    (dataset,) = selection.datasets
    if not await in_thread(has_contents, selection):
        return None
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(dataset.manifest.shards.counts)])
    rows = await in_thread(lambda: {shard.key: row for row, shard in enumerate(selection.shards)})
    bodies: dict[bytes, _Place] = {}
    chosen: dict[str, NDArray[np.int64]] = {}
    async with aclosing(finder.find(selection, shards)) as found:
        async for shard, records in found:
            if len(records):
                chosen[shard.key] = records
                contents = await _contents_of(selection, shard, records)
                for digest, record in zip(contents, records.tolist(), strict=True):
                    if digest != NO_KEY and shared_digests(digest)[0] == digest:
                        bodies[digest] = _Place(shard, record, int(starts[rows[shard.key]]) + record)
    heirs = await _heirs(selection, bodies, chosen, rows, starts)
    return await _piece(Dataset(dataset.folder, dataset.name, dataset.manifest), bodies, heirs) if heirs else None


async def _heirs(
    selection: Selection,
    bodies: dict[bytes, _Place],
    chosen: dict[str, NDArray[np.int64]],
    rows: dict[str, int],
    starts: NDArray[np.int64],
) -> dict[bytes, _Place]:
    """Map each body whose pages will all be deleted to the earliest committed revisit that remains, if any."""
    order = await in_thread(CommitOrder, selection.datasets[0].manifest.shards)
    wanted = {each for digest in bodies for each in shared_digests(digest)}
    staying: set[bytes] = set()
    first: dict[bytes, tuple[int, _Place]] = {}
    async with aclosing(_having(selection, selection.shards, wanted)) as having:
        async for shard, found in having:
            records = np.setdiff1d(found, chosen.get(shard.key, found[:0]))
            if not len(records):
                continue
            numbers = records + starts[rows[shard.key]]
            places = (await in_thread(order.places, numbers)).tolist()
            contents = await _contents_of(selection, shard, records)
            for digest, record, number, place in zip(contents, records.tolist(), numbers.tolist(), places, strict=True):
                body = shared_digests(digest)[0]
                if digest == body:
                    staying.add(body)
                elif body not in first or place < first[body][0]:
                    first[body] = place, _Place(shard, record, number)
    return {body: place for body, (_, place) in first.items() if body not in staying}


async def _piece(dataset: Dataset, bodies: dict[bytes, _Place], heirs: dict[bytes, _Place]) -> Piece:
    schema = dataset.schema
    assert schema is not None, "seen= requires a schema"
    piece, size = Piece(), 0
    ordered = sorted(heirs.items(), key=lambda each: (_kind(each[1].shard), each[1].number))
    kind = _kind(ordered[0][1].shard)
    for digest, heir in ordered:
        if size >= _PIECE_BYTES or _kind(heir.shard) != kind:
            break
        if heir.shard.key not in piece.moved:
            if len(piece.shards) == _PIECE_SHARDS:
                break
            piece.shards.append(heir.shard)
        body, revisit = await dataset.get_many([bodies[digest].number, heir.number])
        record = await in_thread(_whole, schema, digest, body, revisit)
        keys = await _digests_of(dataset, heir)
        piece.moved.setdefault(heir.shard.key, {})[heir.record] = record, keys[:KEY_BYTES] + digest
        size += len(record)
    return piece


def _kind(shard: SelectedShard) -> tuple[str, bool]:
    """Return the options that all shards of a job must share: the compression, and whether indexes are written."""
    assert shard.entry is not None, "a manifest lists the shard"
    return shard.entry.compression, shard.entry.index is not None


def _whole(schema: Schema, digest: bytes, body: bytes, revisit: bytes) -> bytes:
    """Return a revisit converted to a complete page, with its body copied from the page ``body``. Blocks."""
    original, page = page_in(body, schema), page_in(revisit, schema)
    if content_digest(original.get("digest") or "") != digest or is_revisit(original) or not is_revisit(page):
        raise ArgumentValueError(
            f"the page {original.get('url')} has the body of the revisit {page.get('url')}, and cannot transfer it, "
            "because its writer distinguished bodies by a feature other than the digest; nothing was changed"
        ).with_remedy(
            "to delete the revisits, too, pass content=True", command="to delete the revisits, too, add --content"
        )
    return schema.encode(resolved(page, original))


async def _digests_of(dataset: Dataset, place: _Place) -> bytes:
    assert place.shard.entry is not None, "a manifest lists the shard"
    content = await load_digests(dataset.folder, place.shard.entry)
    return content[PAIR_BYTES * place.record : PAIR_BYTES * (place.record + 1)]


async def _contents_of(selection: Selection, shard: SelectedShard, records: NDArray[np.int64]) -> list[bytes]:
    """Return the content digests of the given records of a shard (`NO_KEY` for each if the shard has none)."""
    if shard.entry is None or shard.entry.key_bytes != PAIR_BYTES:
        return [NO_KEY] * len(records)
    content = await load_digests(selection.datasets[0].folder, shard.entry)

    def pick() -> list[bytes]:
        starts = (PAIR_BYTES * records + KEY_BYTES).tolist()
        return [content[at : at + KEY_BYTES] for at in starts]

    return await in_thread(pick)


async def _having(selection: Selection, shards: Sequence[SelectedShard], digests: set[bytes]) -> AsyncGenerator[Found]:
    """Yield every shard with the numbers of its records whose content digest is in ``digests``."""
    if not digests:
        for shard in shards:
            yield shard, np.empty(0, np.int64)
        return
    finder = await in_thread(lambda: ByDigests(digests, contents=True))
    async with aclosing(finder.find(selection, shards)) as found:
        async for each in found:
            yield each
