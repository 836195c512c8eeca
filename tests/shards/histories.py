"""Hypothesis strategies for the history of a data set, and a slow but simple reference merge."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from asyncrec._shards.manifest.manifest import agreed
from asyncrec._shards.manifest.names import index_key, keys_key
from asyncrec._shards.manifest.segment import Segment, ShardEntry, Sidecar, format_time

__all__ = ["Named", "expected", "histories", "seen_of"]

# A segment with its name, which does not include the folder.
Named = tuple[str, Segment]

_PATHS = ("pages-a-000000.tfrecord", "pages-00000-of-00002.tfrecord", "x", "ä/ö-00001-of-00002.tfrecord", "deep/er/z")
_TIMES = st.integers(0, 12).map(format_time)
_WRITERS = ("a", "b", "w_3", "67e0")
_SOURCES = st.sampled_from(("topic/3", "ä", "forgotten"))
_PROGRESS = st.dictionaries(_SOURCES, st.tuples(st.integers(1, 3), st.integers(-1, 4)), max_size=2)
_RELEASES = st.dictionaries(_SOURCES, st.integers(1, 3), max_size=1)


@st.composite
def _sidecars(draw: st.DrawFn, path: str, writer: str) -> Sidecar | None:
    make = draw(st.sampled_from((index_key, keys_key)))
    name = draw(
        st.sampled_from(
            (None, path, path.replace("pages-", f"pages-{writer}-"), path.replace("ö-", f"ö-{writer}-"), "other")
        )
    )
    if name is None:
        return None
    size = draw(st.integers(0, (1 << 62)))
    return Sidecar(path=make(name), bytes=size, crc32c=draw(st.integers(0, (1 << 32) - 1)))


@st.composite
def _entries(draw: st.DrawFn, writer: str, time: str | None = None) -> ShardEntry:
    path = draw(st.sampled_from(_PATHS))
    size = draw(st.integers(0, 1 << 50))
    return ShardEntry(
        path=path,
        records=draw(st.integers(0, min(1 << 40, size // 16))),
        bytes=size,
        crc32c=draw(st.integers(0, (1 << 32) - 1)),
        end_crc32c=draw(st.integers(0, (1 << 32) - 1)),
        compression=draw(st.sampled_from(("", "GZIP", "ZLIB"))),
        index=draw(_sidecars(path, writer)),
        keys=draw(_sidecars(path, writer)),
        first=draw(st.none() | _TIMES),
        last=draw(st.none() | _TIMES),
        committed=time or draw(_TIMES),
        extra=draw(st.sampled_from(({}, {"later": [1]}))),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Named]:
    """Draw segments as writers would leave them: single commits at different times, and the ends of some logs."""
    found: list[Named] = []
    for writer in draw(st.lists(st.sampled_from(_WRITERS), unique=True, max_size=4)):
        times = draw(st.lists(st.integers(0, 12), unique=True, max_size=5).map(sorted))
        schema = draw(st.sampled_from((None, {}, {"v": 1}, {"v": 2})))
        metadata = draw(st.sampled_from(({}, {"k": writer}, {"k": 1, "only": 2})))
        added: list[ShardEntry] = []
        progress: dict[str, tuple[int, int]] = {}
        for number, second in enumerate(times, 1):
            time = format_time(second)
            if draw(st.integers(0, 7)) == 0:
                void = Segment(writer=writer, time=time, remove=("void",))
                found.append((f"{writer}-{number:06d}.jsonl", void))
                continue
            entry = draw(_entries(writer, time))
            added.append(entry)
            changed = draw(_PROGRESS)
            progress.update(_highest([progress, changed]))
            single = Segment(writer=writer, time=time, add=(entry,), schema=schema, metadata=metadata, progress=changed)
            found.append((f"{writer}-{number:06d}.jsonl", single))
        end = draw(st.sampled_from(("none", "closed", "closed", "tombstone")))
        last = format_time(draw(st.integers(times[-1] + 1 if times else 0, 20)))
        if end == "tombstone":
            tombstone = Segment(writer=writer, time=last, closed=True, abandoned=True)
            found.append((f"{writer}-{len(times) + 1:06d}.jsonl", tombstone))
        elif end == "closed":
            more = draw(st.lists(_entries(writer), max_size=3, unique_by=lambda each: (each.path, each.committed)))
            known = {(each.path, each.committed) for each in added}
            closing = Segment(
                writer=writer,
                time=last,
                add=(*added, *(each for each in more if (each.path, each.committed) not in known)),
                remove=tuple(draw(st.lists(st.sampled_from(_PATHS), unique=True))),
                removal=draw(st.none() | st.integers(1, 5)),
                schema=schema,
                metadata=metadata,
                closed=True,
                progress=progress,
                releases=draw(_RELEASES),
                extra=draw(st.sampled_from(({}, {"recovered_by": "another"}, {"later": [1]}))),
            )
            found.append((f"{writer}-{len(times) + 1:06d}.jsonl", closing))
    return found


def seen_of(named: Iterable[Named]) -> list[Segment]:
    """Return the segments that a reader reads: a closing segment replaces all other segments of its writer."""
    named = list(named)
    well = {segment.writer for _, segment in named if segment.closed and not segment.abandoned}
    return [segment for _, segment in named if segment.closed or segment.writer not in well]


def expected(segments: Iterable[Segment], *, until: str | None = None) -> dict[str, Any]:
    """Return the manifest that these segments describe, computed event by event."""
    segments = list(segments)
    events: list[tuple[Any, ...]] = []
    for segment in segments:
        for entry in segment.add:
            tie = (entry.records, entry.bytes, entry.crc32c)
            events.append((entry.committed, 1, segment.writer, tie, entry))
        events.extend((segment.time, 0, segment.writer, (), path) for path in segment.remove)
    events.sort(key=lambda event: event[:4])
    shards: dict[str, tuple[str, ShardEntry]] = {}
    for time, adds, writer, _, what in events:
        if until is not None and time > until:
            break
        shards.pop(what.path if adds else what, None)
        if adds:
            shards[what.path] = (writer, what)
    identity = 0
    for _, entry in shards.values():
        text = f"{entry.path}\0{entry.records}\0{entry.bytes}\0{entry.crc32c}".encode()
        identity ^= int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    described = sorted(segments, key=lambda each: (each.time, each.writer))
    owners = {writer for writer, _ in shards.values()}
    told = [each for each in described if until is None or each.time <= until or each.writer in owners]
    schema, conflicts = agreed(
        (each.writer, each.schema) for each in told if each.schema is not None and (each.writer in owners or not owners)
    )
    metadata: dict[str, Any] = {}
    for each in told:
        metadata.update(each.metadata)
    return {
        "id": f"{identity:032x}",
        "shards": tuple(shards[path][1] for path in sorted(shards)),
        "schema": schema,
        "metadata": metadata,
        "writers": {writer: _state(writer, described, shards) for writer in sorted({each.writer for each in segments})},
        "removals": max((each.removal or 0 for each in described), default=0),
        "conflicts": tuple(dict.fromkeys(conflicts)),
        "progress": {
            source: position
            for source, (_, position) in _highest(each.progress for each in segments).items()
            if until is None and position >= 0
        },
    }


def _highest(progress: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """Return the highest ``(turn, position)`` of each source."""
    every = sorted((reached, source) for each in progress for source, reached in each.items())
    return {source: reached for reached, source in every}


def _state(writer: str, described: list[Segment], shards: Mapping[str, tuple[str, ShardEntry]]) -> tuple[Any, ...]:
    own = [segment for segment in described if segment.writer == writer]
    entries = [entry for owner, entry in shards.values() if owner == writer]
    return (
        writer,
        any(each.closed for each in own),
        any(each.abandoned for each in own),
        len(entries),
        sum(entry.records for entry in entries),
        own[-1].time,
        any(each.closed and "recovered_by" in each.extra for each in own),
    )
