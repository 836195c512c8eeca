from __future__ import annotations

import hashlib
import json
import pickle
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec._framing import frames
from asyncrec._framing.crc import masked_crc32c
from asyncrec._framing.frames import FRAME_OVERHEAD, HEADER_BYTES, MAX_RECORD_BYTES, FrameDecoder, encode_frames
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError

from .pieces import LARGE, cut, sized_records, small_records


@pytest.fixture(
    # Without a compiler, only NumPy is tested, and the ids of the tests say so.
    params=[pytest.param(frames.native, id="c" if frames.native else "numpy"), pytest.param(None, id="numpy")],
    scope="module",
    autouse=True,
)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(frames, "native", request.param)
        yield


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def frame(record: bytes) -> bytes:
    """Encode a frame with a simple second implementation of the layout."""
    return header(len(record)) + record + struct.pack("<I", masked_crc32c(record))


def decode(pieces: Iterable[bytes], **options: bool | int) -> list[bytes]:
    decoder = FrameDecoder(**options)  # type: ignore[arg-type]  # each test passes what it means
    records = [record for piece in pieces for record in decoder.feed(piece)]
    decoder.finish()
    return records


def damaged(stream: bytes, **options: bool | int) -> tuple[list[bytes], FormatError]:
    """Return the records before the damage, and the error that reports it."""
    decoder = FrameDecoder(**options)  # type: ignore[arg-type]  # each test passes what it means
    records = decoder.feed(stream)
    with pytest.raises(FormatError) as caught:
        decoder.finish()
    assert decoder.error is caught.value
    assert decoder.records == len(records)
    assert decoder.offset == sum(map(len, records)) + FRAME_OVERHEAD * len(records)
    return records, caught.value


# --- decoding ---------------------------------------------------------------------------------------------------------


@given(small_records, st.lists(st.integers(1, 100), max_size=60))
def test_small_records_are_decoded_from_any_split(records: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(encode_frames(records))
    assert decode(cut(stream, sizes)) == records


@given(sized_records, st.lists(st.integers(1, 300_000) | st.integers(1, 40), max_size=60), st.booleans())
@settings(deadline=None)
def test_records_of_all_sizes_are_decoded_from_any_split(records: list[bytes], sizes: list[int], verify: bool) -> None:
    stream = b"".join(encode_frames(records))
    assert decode(cut(stream, sizes), verify=verify) == records


@given(small_records | sized_records, st.integers(1, 300_000))
@settings(deadline=None)
def test_requested_bytes_yield_records_when_fed(records: list[bytes], block: int) -> None:
    stream = b"".join(encode_frames(records))
    decoder = FrameDecoder()
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        size = decoder.wanted or block
        found += decoder.feed(stream[at : at + size])
        at += size
    decoder.finish()
    assert found == records
    assert (decoder.records, decoder.offset) == (len(records), len(stream))


@given(small_records)
def test_records_are_decoded_one_byte_at_a_time(records: list[bytes]) -> None:
    stream = b"".join(encode_frames(records))
    assert decode(stream[at : at + 1] for at in range(len(stream))) == records


def test_record_is_returned_by_feed_completing_its_frame() -> None:
    decoder = FrameDecoder()
    stream = frame(b"first") + frame(b"second")
    border = len(frame(b"first"))
    assert decoder.feed(stream[: border - 1]) == []
    assert (decoder.offset, decoder.records) == (0, 0)
    assert decoder.feed(stream[border - 1 : border + 3]) == [b"first"]
    assert (decoder.offset, decoder.records) == (border, 1)
    assert decoder.feed(b"") == []
    assert decoder.feed(stream[border + 3 :]) == [b"second"]
    assert (decoder.offset, decoder.records) == (len(stream), 2)
    decoder.finish()


def test_records_are_bytes_for_any_split() -> None:
    records = [b"a", bytes(5000), bytes(LARGE)] * 2
    stream = b"".join(encode_frames(records))
    for size in (1000, 4096, 150_000, len(stream)):
        assert {type(record) for record in decode(cut(stream, [size] * 10_000))} == {bytes}


# --- large records without a copy -------------------------------------------------------------------------------------


def test_large_record_is_same_object_as_fed() -> None:
    bodies = [bytes([index]) * LARGE for index in range(3)]
    frames = [frame(body) for body in bodies]
    decoder = FrameDecoder()
    assert decoder.feed(header(LARGE)) == []
    found = []
    for index, body in enumerate(bodies):
        assert decoder.wanted == LARGE
        assert decoder.feed(body) == []
        assert decoder.wanted == FRAME_OVERHEAD
        footer = frames[index][-4:]
        found += decoder.feed(footer + (header(LARGE) if index < 2 else b""))
    decoder.finish()
    assert [id(record) for record in found] == [id(body) for body in bodies]


def test_decoder_wants_exact_remainder_of_large_record() -> None:
    stream = frame(b"small") + frame(bytes(LARGE))
    decoder = FrameDecoder()
    assert decoder.feed(stream[:1000]) == [b"small"]
    assert decoder.wanted == LARGE - (1000 - len(frame(b"small")) - HEADER_BYTES)
    # After receiving fewer bytes than it wanted, it returns how many are still missing.
    decoder.feed(stream[1000:2000])
    assert decoder.wanted == len(stream) - 2000 - 4
    assert decoder.feed(stream[2000:-2]) == []
    assert decoder.wanted == 14
    assert decoder.feed(stream[-2:]) == [bytes(LARGE)]
    assert decoder.wanted == 0


def test_footer_of_large_record_is_processed_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The footer may be processed on an event loop. Expensive work is done when the last data bytes arrive."""
    record = bytes(3_000_000)
    stream = b"".join(encode_frames([record, b"next"]))
    decoder = FrameDecoder()
    body_ends = HEADER_BYTES + len(record)
    assert decoder.feed(stream[:1000]) == []
    assert decoder.feed(stream[1000:body_ends]) == []
    summed: list[int] = []
    monkeypatch.setattr(frames, "masked_crc32c", lambda data: summed.append(len(data)) or masked_crc32c(data))
    assert decoder.feed(stream[body_ends : body_ends + 16]) == [record]
    assert sum(summed) < 100
    assert decoder.feed(stream[body_ends + 16 :]) == [b"next"]


def test_decoder_wants_any_block_outside_large_records() -> None:
    decoder = FrameDecoder()
    assert decoder.wanted == 0
    decoder.feed(header(1000) + b"x")
    assert decoder.wanted == 0
    decoder = FrameDecoder()
    decoder.feed(header(LARGE)[:5])
    assert decoder.wanted == 0


def test_large_record_in_tiny_pieces_takes_proportional_memory() -> None:
    size = 1 << 20
    stream = frame(bytes(size))
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        records = [record for at in range(0, len(stream), 16) for record in decoder.feed(stream[at : at + 16])]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert records == [bytes(size)]
    assert peak < 4 * size


# --- damage -----------------------------------------------------------------------------------------------------------

SAMPLE = [b"", b"a", b"record", bytes(300), *[bytes([index]) * 7 for index in range(40)]]
SAMPLE_STREAM = b"".join(map(frame, SAMPLE))


@pytest.mark.slow(but=["one by one"])
@pytest.mark.parametrize("count", [5, len(SAMPLE)], ids=["one by one", "all at once"])
def test_every_flipped_bit_is_detected(count: int) -> None:
    ends = [0]
    for record in SAMPLE[:count]:
        ends.append(ends[-1] + len(record) + FRAME_OVERHEAD)
    for bit in range(8 * ends[-1]):
        stream = bytearray(SAMPLE_STREAM[: ends[-1]])
        stream[bit // 8] ^= 1 << bit % 8
        hit = next(index for index, end in enumerate(ends) if bit // 8 < end) - 1
        in_header = bit // 8 - ends[hit] < HEADER_BYTES
        records, error = damaged(bytes(stream))
        assert records == SAMPLE[:hit]
        assert isinstance(error, CorruptRecordError)
        assert (error.part, error.record, error.offset) == ("length" if in_header else "data", hit, ends[hit])


@given(st.data())
@settings(deadline=None)
def test_flipped_bit_is_detected_in_any_split(data: st.DataObject) -> None:
    records = [*SAMPLE, bytes(5000), bytes(LARGE), b"last"]
    stream = bytearray(b"".join(map(frame, records)))
    at = data.draw(st.integers(0, len(SAMPLE_STREAM) + 100) | st.integers(0, len(stream) - 1))
    stream[at] ^= 1 << data.draw(st.integers(0, 7))
    decoder = FrameDecoder()
    found: list[bytes] = []
    with pytest.raises(CorruptRecordError):
        for piece in cut(bytes(stream), data.draw(st.lists(st.integers(1, 300_000) | st.integers(1, 99), max_size=30))):
            found += decoder.feed(piece)
        decoder.finish()
    assert found == records[: len(found)]
    begin = decoder.offset
    assert begin <= at < begin + len(records[len(found)]) + FRAME_OVERHEAD


def test_stream_cut_within_record_is_truncated() -> None:
    borders = {0}
    for record in SAMPLE:
        borders.add(max(borders) + len(record) + FRAME_OVERHEAD)
    for size in range(len(SAMPLE_STREAM)):
        whole = sorted(border for border in borders if border <= size)
        if size in borders:
            assert decode([SAMPLE_STREAM[:size]]) == SAMPLE[: len(whole) - 1]
            continue
        records, error = damaged(SAMPLE_STREAM[:size])
        assert isinstance(error, TruncatedError)
        assert records == SAMPLE[: len(whole) - 1]
        assert (error.record, error.offset) == (len(records), whole[-1])


@pytest.mark.parametrize("pieces", [[7], [3, 4]])
def test_stray_header_bytes_are_counted_in_error(pieces: list[int]) -> None:
    decoder = FrameDecoder()
    decoder.feed(frame(b"whole"))
    for size in pieces:
        decoder.feed(header(3)[:size])
    with pytest.raises(TruncatedError, match="7 of its 12 bytes"):
        decoder.finish()


def test_truncation_error_states_present_and_expected_bytes() -> None:
    for size in (50_000, LARGE + HEADER_BYTES + 2):
        _, error = damaged(frame(bytes(LARGE))[:size])
        assert isinstance(error, TruncatedError)
        assert f"{size:,} of the {LARGE + 16:,} bytes" in str(error)


def test_damage_is_raised_again_by_every_later_call() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frame(b"good") + b"\xff" * 20) == [b"good"]
    assert decoder.error is not None
    assert decoder.wanted == 0
    for call in (lambda: decoder.feed(frame(b"more")), decoder.finish, decoder.finish):
        with pytest.raises(CorruptRecordError) as caught:
            call()
        assert caught.value is decoder.error


def test_truncation_is_raised_again() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"\x01")
    for call in (decoder.finish, decoder.finish, lambda: decoder.feed(b"x")):
        with pytest.raises(TruncatedError):
            call()


def test_error_location_counts_from_start_of_reader() -> None:
    decoder = FrameDecoder()
    decoder.offset, decoder.records = 1000, 10
    decoder.feed(frame(b"good") + b"\xff" * 20)
    assert decoder.error is not None
    assert (decoder.error.offset, decoder.error.record) == (1000 + len(frame(b"good")), 11)
    decoder.error.path = "pages.tfrecord"
    assert str(decoder.error).startswith("pages.tfrecord, record 11, offset 1020: ")
    copy = pickle.loads(pickle.dumps(decoder.error))
    assert (str(copy), copy.part) == (str(decoder.error), "length")


@pytest.mark.parametrize("length", [MAX_RECORD_BYTES + 1, 2**40, 2**63, 2**64 - 1])
@pytest.mark.parametrize("split", [5, 12, 40])
def test_excessive_length_is_rejected_without_allocation(length: int, split: int) -> None:
    stream = frame(b"good") + header(length) + bytes(100)
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        records = decoder.feed(stream[: 20 + split])
        if decoder.error is None:
            records += decoder.feed(stream[20 + split :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert records == [b"good"]
    assert isinstance(decoder.error, RecordTooLargeError)
    assert (decoder.error.length, decoder.error.limit) == (length, MAX_RECORD_BYTES)
    assert peak < 1_000_000


@pytest.mark.parametrize("length", [0, 5, 2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("count", [1, 50])
def test_length_with_wrong_checksum_is_rejected(length: int, count: int) -> None:
    stream = frame(b"good") * count + struct.pack("<QI", length, 12345) + bytes(1000) + frame(b"good")
    records, error = damaged(stream)
    assert records == [b"good"] * count
    assert isinstance(error, CorruptRecordError)
    assert (error.part, error.offset, error.record) == ("length", 20 * count, count)


@pytest.mark.parametrize("count", [1, 50])
def test_limit_applies_to_records_within_single_block(count: int) -> None:
    stream = frame(b"12345") * count + frame(b"123456") + frame(b"1")
    assert decode([stream], max_record_bytes=6) == [b"12345"] * count + [b"123456", b"1"]
    records, error = damaged(stream, max_record_bytes=5)
    assert records == [b"12345"] * count
    assert isinstance(error, RecordTooLargeError)
    assert (error.length, error.limit) == (6, 5)


@pytest.mark.parametrize("size", [4, LARGE])
@pytest.mark.parametrize("more", [1, 50])
def test_unverified_decoder_returns_changed_payload_but_rejects_changed_length(size: int, more: int) -> None:
    stream = bytearray(frame(b"a") + frame(bytes(size)) + frame(b"c") * more)
    stream[17 + HEADER_BYTES] ^= 1
    changed = b"\x01" + bytes(size - 1)
    for block in (1 << 20, 50_000, 10):
        assert decode(cut(bytes(stream), [block] * len(stream)), verify=False) == [b"a", changed] + [b"c"] * more
    stream[17] ^= 1
    records, error = damaged(bytes(stream), verify=False)
    assert records == [b"a"]
    assert isinstance(error, CorruptRecordError)
    assert error.part == "length"


@given(st.binary(max_size=400))
def test_random_bytes_never_crash_decoder(data: bytes) -> None:
    decoder = FrameDecoder()
    records = decoder.feed(data)
    if data and not records:
        with pytest.raises(FormatError):
            decoder.finish()


def test_non_tfrecord_file_error_includes_hint() -> None:
    _, error = damaged(b"%PDF-1.7 and so on, and on")
    assert "check that this is a TFRecord file" in str(error)


# --- files from TensorFlow --------------------------------------------------------------------------------------------


def plain_vectors() -> list[str]:
    manifest = json.loads((Path(__file__).parents[1] / "vectors" / "manifest.json").read_text())
    return [name for name, held in manifest["files"].items() if not held.get("compression_type")]


@pytest.mark.parametrize("name", plain_vectors())
@pytest.mark.parametrize("block", [1, 1000, 1 << 20])
def test_tensorflow_files_round_trip_byte_for_byte(vectors: Path, name: str, block: int) -> None:
    held = json.loads((vectors / "manifest.json").read_text())["files"][name]
    stream = (vectors / name).read_bytes()
    records = decode(cut(stream, [block] * len(stream)))
    assert [len(record) for record in records] == held["lengths"]
    assert [hashlib.sha256(record).hexdigest() for record in records] == held["sha256"]
    assert b"".join(encode_frames(records)) == stream


def test_interleave_shards_from_tensorflow_match_their_manifest(vectors: Path) -> None:
    for case in json.loads((vectors / "manifest.json").read_text())["interleave"]:
        shards = sorted((vectors / case["folder"]).iterdir())
        records = [decode([shard.read_bytes()]) for shard in shards]
        assert [len(shard) for shard in records] == case["lengths"]
        named = [
            [f"{shard}:{index}".encode() for index in range(length)] for shard, length in enumerate(case["lengths"])
        ]
        assert records == named


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.data())
def test_decoder_keeps_bytes_from_damage_on(records: list[bytes], data: st.DataObject) -> None:
    stream = bytearray(b"".join(map(frame, records)))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    stream = stream[: data.draw(st.integers(1, len(stream)))]
    decoder = FrameDecoder(max_record_bytes=data.draw(st.sampled_from([20, 1000])))
    fed = 0
    try:
        for piece in cut(bytes(stream), data.draw(st.lists(st.integers(1, 30), max_size=20))):
            decoder.feed(piece)
            fed += len(piece)
        decoder.finish()
    except FormatError:
        assert b"".join(decoder.take_remains()) == stream[decoder.offset : fed]
