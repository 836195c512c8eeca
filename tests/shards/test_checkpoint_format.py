"""`asyncrec._shards.manifest.checkpoint`: a checkpoint and the segments it does not cover say what all segments say."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from dataclasses import astuple, fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._framing.crc import crc32c
from asyncrec._shards.manifest.checkpoint import CheckpointDecoder, encode_checkpoint
from asyncrec._shards.manifest.covered import CoveredNames
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.manifest import Manifest, manifest_of, merge_segments
from asyncrec._shards.manifest.merging import plus
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec.errors import ManifestError

from .histories import Named, expected, histories, seen_of


def told(manifest: Manifest) -> dict[str, Any]:
    found = {field.name: getattr(manifest, field.name) for field in fields(manifest) if field.name != "path"}
    writers = {writer: astuple(state) for writer, state in manifest.writers.items()}
    return {**found, "shards": tuple(manifest.shards), "writers": writers}


def encoded(history: History, number: int = 1) -> bytes:
    return b"".join(encode_checkpoint(history, name="pages", number=number, time=format_time(0)))


def decoded(content: bytes, pieces: int = 1) -> History:
    decoder = CheckpointDecoder("checkpoint")
    size = max(1, -(-len(content) // pieces))
    for at in range(0, len(content), size):
        decoder.feed(content[at : at + size])
    return decoder.finish()


def read(history: History, named: list[Named]) -> History:
    """As a reader does with the segments that it lists."""
    new = [(name, segment) for name, segment in named if name not in history.covered]
    well = {segment.writer for _, segment in new if segment.closed and not segment.abandoned} | history.closed_well
    seen = [segment for _, segment in new if segment.closed or segment.writer not in well]
    fences = [name for name, segment in new if segment.abandoned and not segment.closed]
    return plus(history, seen, names=[name for name, _ in new], fences=fences)


@pytest.mark.slow
@given(histories(), st.integers(0, 1 << 32).map(random.Random))
def test_segments_in_any_order_and_any_groups_say_what_they_say_one_by_one(named: list[Named], rng: Any) -> None:
    segments = seen_of(named)
    rng.shuffle(segments)
    assert told(merge_segments("pages", segments)) == expected(segments)
    history = History()
    while segments:
        some = rng.randint(1, len(segments))
        history, segments = plus(history, segments[:some]), segments[some:]
    assert told(manifest_of("pages", history)) == expected(seen_of(named))


@pytest.mark.slow
@given(histories(), st.integers(0, 1 << 32).map(random.Random), st.integers(1, 40))
def test_a_chain_of_checkpoints_and_the_remaining_segments_give_the_manifest_of_all(
    named: list[Named], rng: Any, pieces: int
) -> None:
    """A segment comes when its writer has made it; checkpoints are made at any moments between."""
    history = History()
    arrived: list[Named] = []
    waiting = list(named)
    while waiting:
        writer = rng.choice(waiting)[1].writer
        arrived.append(waiting.pop(next(i for i, each in enumerate(waiting) if each[1].writer == writer)))
        if rng.random() < 0.3:
            merged = read(history, arrived)
            assert told(manifest_of("pages", merged)) == expected(seen_of(arrived))
            history = decoded(encoded(merged), pieces)
            assert encoded(history) == encoded(merged)
            assert all(name in history.covered for name, _ in arrived)
            assert history.covered == CoveredNames().plus((name for name, _ in arrived), history.covered.fences)
            assert not any(name in history.covered for name, _ in waiting)
            if rng.random() < 0.5:  # what may go is gone
                arrived = [each for each in arrived if not history.covered.may_go(each[0])]
                assert all(segment.closed or segment.abandoned or ".jsonl" not in name for name, segment in arrived)
                # From here on the rest is known by the checkpoint alone.
                assert told(manifest_of("pages", read(history, arrived))) == told(manifest_of("pages", history))
                break
    whole = read(history, named)
    assert told(manifest_of("pages", whole)) == expected(seen_of(named))
    for path in {entry.path for _, segment in named for entry in segment.add}:
        assert whole.lists(path)
    for segment in seen_of(named):
        assert all(map(whole.removes, segment.remove))
        assert all(whole.rows_naming(key) for entry in segment.add for key in entry.objects)
    assert not whole.rows_naming("_index/none.index")


@pytest.mark.slow
@given(histories())
def test_earlier_snapshots_are_found_in_a_checkpoint(named: list[Named]) -> None:
    segments = seen_of(named)
    history = decoded(encoded(plus(History(), segments)))
    for second in range(0, 21, 3):
        wanted = expected(segments, until=format_time(second))
        at = manifest_of("pages", history, at=datetime.fromtimestamp(second, UTC))
        assert told(at) == wanted
        if second > 12 and wanted["shards"]:
            found = manifest_of("pages", history, at=wanted["id"])
            assert found.id == wanted["id"]
            assert [shard.path for shard in found.shards] == [shard.path for shard in wanted["shards"]]


def made(count: int) -> History:
    """A history of so many shards."""
    entries = [
        ShardEntry(
            path=f"p-w-{n:06d}.tfrecord",
            records=n,
            bytes=n * 17,
            crc32c=n * 31,
            end_crc32c=0,
            compression="",
            committed=format_time(n),
        )
        for n in range(count)
    ]
    return plus(History(), [Segment(writer="w", time=format_time(count), add=tuple(entries), closed=True)])


@pytest.mark.slow
def test_a_checkpoint_of_several_blocks_is_read_in_any_pieces() -> None:
    history = made(10_000)
    content = encoded(history)
    for pieces in (1, 7, 1000):
        again = decoded(content, pieces)
        assert told(manifest_of("p", again)) == told(manifest_of("p", history))
    assert len(content) < 40 * 10_000
    shards = manifest_of("p", decoded(content)).shards
    assert (shards[-1].path, shards[3:5][1].records, len(shards)) == ("p-w-009999.tfrecord", 4, 10_000)
    assert shards.names("p-w-000017.tfrecord")
    assert not shards.names("p-w-000017")


def test_every_damage_is_an_error_and_none_takes_memory() -> None:
    content = encoded(made(5000))
    rng = random.Random(1)
    for _ in range(400):
        damaged = bytearray(content)
        at = rng.randrange(len(content))
        if rng.random() < 0.3:
            del damaged[at:]
        else:
            damaged[at] ^= 1 << rng.randrange(8)
        try:
            again = decoded(bytes(damaged))
        except ManifestError:
            continue
        # The line before the blocks holds nothing that counts but the number.
        assert at <= content.index(b"\n")
        assert encoded(again) == content or again.checkpoint != 1 or b"pages" not in damaged
    with pytest.raises(ManifestError, match="cut off"):
        decoded(content + b"more")
    with pytest.raises(ManifestError, match=r"no checkpoint|JSON"):
        decoded(b"x" * 100_000)
    with pytest.raises(ManifestError, match="newer asyncrec"):
        decoded(content.replace(b'"checkpoint": 1', b'"checkpoint": 2'))


@pytest.mark.parametrize(
    ("records", "size", "compression"),
    [(2, 31, ""), (1 << 62, 1 << 62, ""), (1032 * 3, 47, "GZIP"), ((1 << 63) - 2, 1 << 40, "ZLIB")],
)
def test_a_checkpoint_that_counts_more_than_fits_is_refused(records: int, size: int, compression: str) -> None:
    entry = ShardEntry(
        path="p", records=records, bytes=size, crc32c=0, end_crc32c=0, compression=compression, committed=format_time(0)
    )
    content = encoded(plus(History(), [Segment(writer="w", time=format_time(0), add=(entry,))]))
    with pytest.raises(ManifestError, match="more records than there are bytes"):
        decoded(content)


def block(kind: int, rows: int, content: bytes) -> bytes:
    """A block with its right checksum, deflated as far as zlib does."""
    stored = zlib.compress(content, 9)
    header = kind, rows, len(content), len(stored)
    checksum = crc32c(stored, crc32c(struct.pack("<5I", *header, 0)))
    return struct.pack("<5I", *header, checksum) + stored


@pytest.mark.parametrize("rows", [4096, 1 << 20])
def test_a_block_of_json_takes_no_more_than_it_weighs(rows: int) -> None:
    head = encoded(made(1)).partition(b"\n")[0] + b"\n"
    noise = bytes(random.Random(1).choices(b"abcdefghijklmnop", k=3 * rows // 128))  # deflate makes at most 256 of one
    small = head + block(2, rows, b'{"a":"%s"}\0' % noise + b"{}\0" * (rows - 1))
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError, match="it is damaged"):
            decoded(small)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(small)


def test_a_block_of_more_rows_than_are_written_is_refused() -> None:
    head = encoded(made(1)).partition(b"\n")[0] + b"\n"
    rng = random.Random(1)
    lines = [b'"%08x"\0' % rng.getrandbits(32) for _ in range(4097)]
    with pytest.raises(ManifestError, match="cut off"):
        decoded(head + block(1, 4096, b"".join(lines[:4096])))
    with pytest.raises(ManifestError, match="4,097 rows"):
        decoded(head + block(1, 4097, b"".join(lines)))


def test_json_that_deflates_well_is_read_again() -> None:
    metadata = {"notes": "of much the same " * 1000}
    history = plus(History(), [Segment(writer="w", time=format_time(0), metadata=metadata)])
    assert manifest_of("pages", decoded(encoded(history))).metadata == metadata


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a/../b", "a//b", "a/", "./a", "s3://b/k", "c:x", "\\x", "a\\..\\b", ".", ".."]
)
def test_a_path_that_leads_out_of_the_folder_is_refused(path: str) -> None:
    entry = ShardEntry(path=path, records=1, bytes=17, crc32c=0, end_crc32c=0, compression="", committed=format_time(0))
    content = encoded(plus(History(), [Segment(writer="w", time=format_time(0), add=(entry,))]))
    with pytest.raises(ManifestError, match="leads out"):
        decoded(content)
