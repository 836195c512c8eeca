"""`revisits_without` finds the revisits that would lose their bodies if some records of a data set were left out.

A deletion by keys removes all versions of a page, including its revisits, because a revisit has the key of the page
that it refers to. But conditions may select a body without its revisits (``date<2026-11-01``), and so may a compaction
or a `dedupe` that keeps the newest versions. Therefore, all pages are read before any record is left out, and also all
records without a schema, or with one that allows more features, because they may be pages. For each page, 8 bytes are
kept: a hash of the URL and the digest, which is the same for a body and its revisits. If a writer used ``seen=``, a
body may have moved to a page with another URL, where readers find it by its digest. In that case, a hash of the digest
is also kept.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from asyncrec._concurrency.tasks import in_thread
from asyncrec._sampling.record_set import RecordSet
from asyncrec._shards.writing.keys import key_digests
from asyncrec.errors import ExampleError
from asyncrec.example._schema import Schema
from asyncrec.pages._schema import PAGE
from asyncrec.tools._bodies import has_contents
from asyncrec.tools._conditions import features_of
from asyncrec.tools._keyed_records import KeyedRecords
from asyncrec.tools._selection import Selection

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = ("url", "date", "type", "digest", "refers_to_url")
_REFERENCES = Schema({name: PAGE.features[name] for name in _NAMES}, allow_extra=True)
# The number of revisits to name in a message.
_NAMED = 3

LeavesOut: TypeAlias = "Callable[[list[bytes], int], NDArray[np.bool_]]"
"""A blocking function that returns whether each record is left out. It receives the records and the first's number."""


async def revisits_among(selection: Selection, kept: RecordSet) -> list[str]:
    """Return the result of `revisits_without` if all records that are not in ``kept`` are left out."""

    def left_out(records: list[bytes], first: int) -> NDArray[np.bool_]:
        return ~kept.has(np.arange(first, first + len(records), dtype=np.int64))

    return await revisits_without(selection, left_out) if len(kept) < kept.size else []


async def revisits_without(selection: Selection, leaves_out: LeavesOut) -> list[str]:
    """Return the URLs and dates of up to three revisits that would lose their bodies, for an error message.

    Raises: as for `KeyedRecords` and ``leaves_out``.
    """
    known = features_of(selection.schema)
    if known is not None and not known.keys() >= set(_NAMES):
        return []  # the records are not pages, or their schema has no revisits
    identities: list[_Identity] = [_by_url, _by_digest] if await in_thread(has_contents, selection) else [_by_url]
    look = partial(_look, leaves_out=leaves_out, identities=identities)
    found = [_Bodies() for _ in identities]
    async with aclosing(_pages(selection, look)) as pages:
        async for batch in pages:
            for kind, bodies in zip(found, batch.bodies, strict=True):
                kind.add(bodies, batch)
    lost = await in_thread(lambda: [kind.lost() for kind in found])
    named: list[str] = []
    if any(map(len, lost)):
        async with aclosing(_pages(selection, look)) as pages:
            async for batch in pages:
                named += batch.revisits_of(lost)
                if len(named) >= _NAMED:
                    break
    return named[:_NAMED]


@dataclass(frozen=True, slots=True)
class _Pages:
    """A batch of pages. Each list and array has one item per page.

    Attributes:
        bodies: for each way of identifying a body, uint64 hashes of the bodies that the pages contain or refer to.
        chosen, revisits: whether each page is left out, and whether it is a revisit.
        names: the URLs and dates of the pages.
    """

    bodies: list[NDArray[np.uint64]]
    chosen: NDArray[np.bool_]
    revisits: NDArray[np.bool_]
    names: list[tuple[str, str]]

    def revisits_of(self, lost: list[NDArray[np.uint64]]) -> list[str]:
        """Return the URLs and dates of the kept revisits that refer to any of these bodies, however identified."""
        refer = np.any([np.isin(own, bodies) for own, bodies in zip(self.bodies, lost, strict=True)], axis=0)
        rows = np.flatnonzero(self.revisits & ~self.chosen & refer).tolist()
        return [f"{self.names[row][0]} of {self.names[row][1]}" for row in rows]


@dataclass(slots=True)
class _Bodies:
    """The hashes of the bodies that are left out, that are kept, and that kept revisits need."""

    chosen: list[NDArray[np.uint64]] = field(default_factory=list)
    stay: list[NDArray[np.uint64]] = field(default_factory=list)
    needed: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(self, bodies: NDArray[np.uint64], pages: _Pages) -> None:
        self.chosen.append(bodies[pages.chosen & ~pages.revisits])
        self.stay.append(bodies[~pages.chosen & ~pages.revisits])
        self.needed.append(bodies[~pages.chosen & pages.revisits])

    def lost(self) -> NDArray[np.uint64]:
        """Return the bodies that are needed but left out, except those that another kept page contains. Blocks."""
        chosen, stay, needed = (
            np.unique(np.concatenate([_NONE, *each])) for each in (self.chosen, self.stay, self.needed)
        )
        return np.setdiff1d(np.intersect1d(chosen, needed, assume_unique=True), stay, assume_unique=True)


async def _pages(selection: Selection, look: Callable[[list[bytes], int], _Pages]) -> AsyncGenerator[_Pages]:
    """Yield all pages of a data set in batches."""
    async with AsyncExitStack() as stack:
        records = KeyedRecords(selection, stack, lambda done, total: None, keyed=False)
        async for batch in records:
            yield await in_thread(look, batch.records, records.given - len(batch.records))


def _look(records: list[bytes], first: int, *, leaves_out: LeavesOut, identities: list[_Identity]) -> _Pages:
    """Parse records as a batch of pages. Blocks."""
    columns = _columns(records)
    revisits = np.array([each == "revisit" for each in columns["type"]], np.bool_)
    targets = [refers or url for url, refers in zip(columns["url"], columns["refers_to_url"], strict=True)]
    bodies = []
    for identity in identities:
        digests = key_digests(list(map(identity, targets, columns["digest"])))
        bodies.append(np.frombuffer(b"".join(digests), np.uint64)[::2])
    return _Pages(bodies, leaves_out(records, first), revisits, list(zip(columns["url"], columns["date"], strict=True)))


_Identity: TypeAlias = Callable[[str, str], str]
"""Returns the identity of a body, from the URL of its page and its digest."""


def _by_url(url: str, digest: str) -> str:
    return f"{url} {digest}"


def _by_digest(url: str, digest: str) -> str:
    return digest or url


def _columns(records: list[bytes]) -> dict[str, list[str]]:
    """Return the values of `_NAMES` in the records, with empty strings for a record that is not a page."""
    try:
        return {name: values.tolist() for name, values in _REFERENCES.decode_batch(records).items()}
    except ExampleError:
        if len(records) == 1:
            return {name: [""] for name in _NAMES}
    parts = [_columns([record]) for record in records]
    return {name: [part[name][0] for part in parts] for name in _NAMES}


_NONE = np.empty(0, np.uint64)
