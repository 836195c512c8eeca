from __future__ import annotations

import enum
import gzip
import hashlib
import json
import pickle
import time
import tracemalloc
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec._framing.compression import (
    CompressionOptions,
    Compressor,
    Decompressor,
    detect_compression,
    engines,
    make_compressor,
    parse_compression,
)
from asyncrec._framing.frames import FrameDecoder, encode_frames
from asyncrec.errors import CorruptRecordError, FormatError, TruncatedError

from .pieces import cut

TYPES = ["GZIP", "ZLIB"]
EMPTY_MEMBER = gzip.compress(b"", mtime=0)

# Compressible data, incompressible data, and no data.
data_pieces = st.lists(
    st.binary(max_size=300) | st.builds(lambda text, times: text * times, st.binary(max_size=9), st.integers(0, 3000)),
    max_size=12,
)


@pytest.fixture(params=["isal", "zlib"], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterable[str]:
    """Run each test with isal, and as if isal could not be imported."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "zlib":
            patch.setattr(engines, "_isal", None)
        yield request.param


def compress(steps: Iterable[Sequence[bytes]], **options: Any) -> bytes:
    compressor = make_compressor(CompressionOptions(**options))
    ready = [piece for step in steps for piece in compressor.compress(step)]
    return b"".join(ready) + compressor.finish()


def decompress(type: str, pieces: Iterable[bytes], max_bytes: int = 1 << 18) -> bytes:
    decompressor = Decompressor(type)
    output = bytearray()
    for piece in pieces:
        decompressor.feed(piece)
        while data := decompressor.read(max_bytes):
            assert len(data) <= max_bytes
            output += data
    decompressor.finish()
    return bytes(output)


def stock(type: str, data: bytes) -> bytes:
    return gzip.decompress(data) if type == "GZIP" else zlib.decompress(data)


# --- round trips ------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(TYPES),
    data_pieces,
    st.lists(st.integers(1, 50) | st.integers(1, 5000), max_size=40),
    st.integers(1, 20_000),
    st.integers(1, 3000),
)
@settings(deadline=None)
def test_compressed_data_survives_any_split_and_read_size(
    type: str, pieces: list[bytes], sizes: list[int], max_bytes: int, member_bytes: int
) -> None:
    stream = compress([[piece] for piece in pieces], type=type, member_bytes=member_bytes)
    assert decompress(type, cut(stream, sizes), max_bytes) == b"".join(pieces)
    assert stock(type, stream) == b"".join(pieces)


@given(st.sampled_from(TYPES), data_pieces, st.integers(0, 9), st.integers(1, 5000))
@settings(deadline=None)
def test_standard_library_output_is_decompressed(type: str, pieces: list[bytes], level: int, size: int) -> None:
    if type == "GZIP":
        stream = b"".join(gzip.compress(piece, level) for piece in pieces)
    else:
        stream = zlib.compress(b"".join(pieces), level)
    assert decompress(type, cut(stream, [size] * len(stream))) == b"".join(pieces)


@pytest.mark.parametrize("type", TYPES)
def test_data_round_trips_one_byte_at_a_time(type: str) -> None:
    data = b"".join(b"%d," % index for index in range(2000))
    stream = compress([[data[at : at + 1]] for at in range(len(data))], type=type, member_bytes=1000)
    assert decompress(type, (stream[at : at + 1] for at in range(len(stream))), max_bytes=1) == data


def test_uncompressed_buffers_pass_through() -> None:
    large = bytes(100_000)
    compressor = make_compressor(CompressionOptions())
    out = compressor.compress([b"small", large])
    assert out == [b"small", large]
    assert out[1] is large
    assert (compressor.flush(), compressor.finish()) == (b"", b"")
    assert (compressor.member_offset, compressor.member_input, compressor.total_out) == (0, 100_005, 100_005)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("steps", [[], [[]], [[b""]]])
def test_file_without_records_holds_one_empty_stream(type: str, steps: list[list[bytes]]) -> None:
    stream = compress(steps, type=type)
    assert 8 <= len(stream) <= 40
    assert stock(type, stream) == decompress(type, [stream]) == b""


@pytest.mark.parametrize("type", TYPES)
def test_empty_file_decompresses_to_nothing(type: str) -> None:
    assert decompress(type, []) == decompress(type, [b""]) == b""


@pytest.mark.parametrize("type", TYPES)
def test_output_does_not_depend_on_clock(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compress([[b"record" * 100]], type=type)
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    assert compress([[b"record" * 100]], type=type) == first
    if type == "GZIP":
        assert first[4:8] == bytes(4)  # MTIME


@pytest.mark.parametrize("type", TYPES)
def test_large_buffer_is_compressed_into_small_pieces(type: str) -> None:
    data = hashlib.shake_256(b"").digest(5 << 20)
    compressor = make_compressor(CompressionOptions(type=type))
    pieces = compressor.compress([memoryview(data)])
    assert max(map(len, pieces)) < 2 << 20
    assert stock(type, b"".join(pieces) + compressor.finish()) == data


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("level", [None, *range(-1, 10)])
def test_output_of_every_level_is_readable_by_standard_library(type: str, level: int | None) -> None:
    data = b"".join(b"%d," % index for index in range(5000))
    stream = compress([[data]], type=type, level=level)
    assert stock(type, stream) == data
    assert len(stream) > len(data) if level == 0 else len(stream) < len(data)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(
    "options",
    [
        {"window_bits": 9},
        {"window_bits": 12, "level": 9},
        {"mem_level": 1},
        {"strategy": 2},
        {"strategy": 4, "level": 2},
    ],
)
def test_output_of_every_option_is_readable_by_standard_library(type: str, options: dict[str, int]) -> None:
    data = b"".join(b"%d," % index for index in range(5000))
    assert stock(type, compress([[data]], type=type, **options)) == data


def test_options_are_passed_to_compressor() -> None:
    data = b"".join(b"%d," % (index * index) for index in range(20_000))
    sizes = {
        str(options): len(compress([[data]], type="ZLIB", **options))
        for options in ({}, {"level": 9}, {"level": 1}, {"window_bits": 9}, {"mem_level": 1}, {"strategy": 2})
    }
    assert len(set(sizes.values())) == len(sizes), sizes
    assert compress([[data]], type="ZLIB", window_bits=9)[0] == 0x18  # CINFO of RFC 1950


# --- members ----------------------------------------------------------------------------------------------------------


def written(steps: Sequence[Sequence[bytes]], **options: Any) -> tuple[bytes, list[tuple[int, int]], Compressor]:
    """Return the file, the offset of each step's member and the input before the step in it, and the compressor."""
    compressor = make_compressor(CompressionOptions(**options))
    out, places = bytearray(), []
    for step in steps:
        out += b"".join(compressor.compress(step))
        places.append((compressor.member_offset, compressor.member_input - sum(map(len, step))))
    out += compressor.finish()
    assert compressor.total_out == len(out)
    return bytes(out), places, compressor


@given(st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=5), max_size=12), st.integers(1, 600))
@settings(deadline=None)
def test_members_begin_at_frames_and_decompress_independently(batches: list[list[bytes]], member_bytes: int) -> None:
    steps = [[b"".join(encode_frames(batch))] for batch in batches]
    stream, places, _ = written(steps, type="GZIP", member_bytes=member_bytes)
    for (offset, skipped), batch in zip(places, batches, strict=True):
        frames = decompress("GZIP", [stream[offset:]])[skipped:]
        assert FrameDecoder().feed(frames)[: len(batch)] == batch
        assert skipped < member_bytes
    for (offset, skipped), (after, before), step in zip(places, places[1:], steps, strict=False):
        ended = skipped + len(step[0]) >= member_bytes
        assert (after > offset, before == 0) == (ended, ended)


def test_full_member_ends_only_with_next_record() -> None:
    stream, places, _ = written([[b"x" * 100], [b"y" * 99], [b"z"]], type="GZIP", member_bytes=100)
    assert places[0] == (0, 0)
    assert places[1][0] > 0
    assert places[2] == (places[1][0], 99)
    assert decompress("GZIP", [stream[places[1][0] :]]) == b"y" * 99 + b"z"


def test_zlib_output_is_single_stream_of_any_length() -> None:
    stream, places, _ = written([[b"x" * 100]] * 5, type="ZLIB", member_bytes=10)
    assert places == [(0, 0), (0, 100), (0, 200), (0, 300), (0, 400)]
    assert zlib.decompress(stream) == b"x" * 500


def test_read_reports_member_and_stops_at_its_end() -> None:
    members = [b"a" * 100, b"", b"b" * 50, b"c" * 70]
    packed = [gzip.compress(member, mtime=0) for member in members]
    decompressor = Decompressor("GZIP")
    decompressor.feed(b"".join(packed))
    places = []
    while data := decompressor.read(60):
        assert len(set(data)) == 1
        places.append((data[:1], len(data), decompressor.member_offset, decompressor.member_start))
    decompressor.finish()
    second = len(packed[0]) + len(packed[1])
    third = second + len(packed[2])
    assert places == [
        (b"a", 60, 0, 0),
        (b"a", 40, 0, 0),
        (b"b", 50, second, 100),
        (b"c", 60, third, 150),
        (b"c", 10, third, 150),
    ]


def member(data: bytes, flags: int, extra: bytes = b"BC\x02\x00\x10\x00", name: bytes = b"a\x1f\x8b\x08b") -> bytes:
    """Return a GZIP member whose header has the optional fields given by ``flags`` (RFC 1952)."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + b"\x01\x02\x03\x04\x02\x03"
    if flags & 4:
        header += len(extra).to_bytes(2, "little") + extra
    if flags & 8:
        header += name + b"\0"
    if flags & 16:
        header += b"comment\0"
    if flags & 2:
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return header + deflate.compress(data) + deflate.flush() + trailer


@pytest.mark.parametrize("size", [*range(1, 24), 64, 1 << 15])
def test_gzip_headers_with_optional_fields_survive_any_split(size: int) -> None:
    """All combinations of fields follow each other, so that blocks end at every possible place in a header."""
    parts = [b"%d" % flags * flags for flags in range(32)]
    stream = b"".join(member(part, flags) for flags, part in enumerate(parts))
    assert decompress("GZIP", [stream[at : at + size] for at in range(0, len(stream), size)]) == b"".join(parts)


@given(
    st.lists(st.tuples(st.integers(0, 31), st.binary(max_size=70), st.binary(max_size=70), st.binary(max_size=200))),
    st.integers(1, 90),
    st.integers(1, 90),
)
def test_gzip_optional_fields_may_hold_any_bytes(
    fields: list[tuple[int, bytes, bytes, bytes]], first: int, size: int
) -> None:
    """The first piece is what a reader examines to detect the compression."""
    stream = b"".join(member(data, flags, extra, name.replace(b"\0", b"")) for flags, extra, name, data in fields)
    pieces = [stream[:first], *(stream[at : at + size] for at in range(first, len(stream), size))]
    assert decompress("GZIP", pieces) == b"".join(data for *_, data in fields)
    if stream:
        assert gzip.decompress(stream) == b"".join(data for *_, data in fields)


@pytest.mark.parametrize("size", [1, 7, 1 << 15])
def test_gzip_header_errors_name_their_member(size: int) -> None:
    whole = member(b"x", 0)
    for flags in (2, 31):
        begins = len(member(b"", flags)) - len(member(b"", 0)) + 10
        stream = member(b"data", flags)
        for at in range(3, begins):
            if flags == 31 and at >= 10 and stream[at - 1 : at + 1].count(0):
                continue  # a length or terminator, whose change makes it a different header
            damaged = bytearray(whole + stream)
            damaged[len(whole) + at] ^= 0x80
            with pytest.raises((CorruptRecordError, TruncatedError)) as caught:
                decompress("GZIP", [damaged[i : i + size] for i in range(0, len(damaged), size)])
            assert caught.value.member_offset == len(whole)
        for end in range(1, begins):
            cut = whole + stream[:end]
            with pytest.raises(TruncatedError) as caught_cut:
                decompress("GZIP", [cut[i : i + size] for i in range(0, len(cut), size)])
            assert caught_cut.value.member_offset == len(whole)


def test_header_without_end_uses_no_memory() -> None:
    decompressor = Decompressor("GZIP")
    decompressor.feed(b"\x1f\x8b\x08\x08" + bytes(6))
    name = b"n" * (1 << 20)
    tracemalloc.start()
    try:
        for _ in range(16):
            decompressor.feed(name)
            assert decompressor.read(100) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 18
    with pytest.raises(TruncatedError):
        decompressor.finish()


def test_zeros_after_member_are_ignored_as_padding() -> None:
    stream = gzip.compress(b"first", mtime=0) + bytes(100_000) + gzip.compress(b"second", mtime=0) + bytes(7)
    assert decompress("GZIP", [stream]) == gzip.decompress(stream) == b"firstsecond"
    assert decompress("GZIP", cut(stream, [1] * 60)) == b"firstsecond"


def test_empty_members_take_proportional_time_and_bounded_memory() -> None:
    """Recursion would overflow after a thousand members, and keeping members would show up in the memory use."""
    count, block = 20_000, EMPTY_MEMBER * 1000
    decompressor = Decompressor("GZIP")
    tracemalloc.start()
    try:
        for _ in range(count // 1000):
            decompressor.feed(block)
            assert decompressor.read(1 << 18) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    decompressor.finish()
    decompressor.feed(gzip.compress(b"x", mtime=0))
    assert decompressor.read(10) == b"x"
    assert decompressor.member_offset == count * len(EMPTY_MEMBER)
    assert peak < 2_000_000


# --- flush ------------------------------------------------------------------------------------------------------------


@given(st.sampled_from(TYPES), data_pieces, st.integers(1, 3000))
@settings(deadline=None)
def test_flush_makes_all_data_readable(type: str, pieces: list[bytes], member_bytes: int) -> None:
    compressor = make_compressor(CompressionOptions(type=type, member_bytes=member_bytes))
    decompressor = Decompressor(type)
    plain = zlib.decompressobj(zlib.MAX_WBITS + (16 if type == "GZIP" else 0))
    by_us, by_zlib, given_so_far, out = b"", b"", b"", b""
    for piece in pieces:
        ready = b"".join(compressor.compress([piece])) + compressor.flush()
        out += ready
        given_so_far += piece
        decompressor.feed(ready)
        while data := decompressor.read(1000):
            by_us += data
        while ready:
            by_zlib += plain.decompress(ready)
            ready = plain.unused_data
            if plain.eof:
                plain = zlib.decompressobj(zlib.MAX_WBITS + 16)
        assert by_us == by_zlib == given_so_far
        assert compressor.flush() == b""
        assert compressor.total_out == len(out)
    decompressor.feed(compressor.finish())
    assert decompressor.read(1000) == b""
    decompressor.finish()


# --- bad input --------------------------------------------------------------------------------------------------------

TEXT = b"".join(b"%d," % index for index in range(3000))


def failing(type: str, stream: bytes) -> tuple[bytes, FormatError]:
    decompressor = Decompressor(type)
    decompressor.feed(stream)
    output = b""
    with pytest.raises(FormatError) as caught:
        while data := decompressor.read(1 << 18):
            output += data
        decompressor.finish()
    for call in (lambda: decompressor.read(1), decompressor.finish):
        with pytest.raises(FormatError) as again:
            call()
        assert again.value is caught.value
    assert caught.value.offset == len(output)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return output, caught.value


@pytest.mark.parametrize("type", TYPES)
def test_stream_cut_at_any_byte_is_truncated(type: str) -> None:
    stream = compress([[TEXT[:300]]], type=type)
    for size in range(1, len(stream)):
        output, error = failing(type, stream[:size])
        assert isinstance(error, TruncatedError)
        assert TEXT[:300].startswith(output)
        assert f"{size:,} bytes" in str(error)


def test_truncation_error_names_member() -> None:
    first, second = gzip.compress(b"first", mtime=0), gzip.compress(b"second", mtime=0)
    output, error = failing("GZIP", first + second[:-1])
    assert isinstance(error, TruncatedError)
    assert (error.offset, error.member_offset) == (11, len(first))
    assert output == b"firstsecond"


@pytest.mark.parametrize("size", [1, 9, 10, 11])
def test_error_names_faulty_member_even_without_output(size: int) -> None:
    """Recovery cuts the file there: if the error named the last bytes read, the intact member before would be lost."""
    first, second = gzip.compress(b"first", mtime=0), gzip.compress(b"second", mtime=0)
    for torn, kind in ((second[:size], TruncatedError), (b"\x1f" + bytes(20), CorruptRecordError)):
        decompressor = Decompressor("GZIP")
        decompressor.feed(first + torn)
        assert decompressor.read(100) == b"first"
        assert (decompressor.member_offset, decompressor.member_start) == (0, 0)
        with pytest.raises(kind) as caught:
            assert decompressor.read(100) == b""
            decompressor.finish()
        assert (decompressor.member_offset, decompressor.member_start) == (len(first), 5)
        assert caught.value.member_offset == len(first)


@pytest.mark.parametrize("type", TYPES)
def test_flipped_bit_never_yields_wrong_data(type: str) -> None:
    stream = compress([[TEXT[:300]]], type=type)
    harmless = 0
    for bit in range(8 * len(stream)):
        changed = bytearray(stream)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            output = decompress(type, [bytes(changed)])
        except (CorruptRecordError, TruncatedError):
            continue
        assert output == TEXT[:300]
        harmless += 1
    # GZIP's time, flags and system, and the padding bits of the last byte, do not affect the data.
    assert harmless <= 8 * 10 + 7


def test_damage_error_gives_offsets_of_output_and_member() -> None:
    first = gzip.compress(TEXT, mtime=0)
    bad = bytearray(gzip.compress(TEXT, mtime=0))
    bad[-8] ^= 1
    output, error = failing("GZIP", first + bytes(bad))
    assert output == TEXT
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.member_offset, error.part) == (len(TEXT), len(first), "compression")


def test_garbage_after_member_is_reported_as_corrupt() -> None:
    output, error = failing("GZIP", gzip.compress(b"good", mtime=0) + b"garbage")
    assert output == b"good"
    assert isinstance(error, CorruptRecordError)
    assert "not GZIP" in str(error)


@pytest.mark.parametrize("more", [b"\0", b"x", zlib.compress(b"second")])
def test_data_after_zlib_stream_raises(more: bytes) -> None:
    output, error = failing("ZLIB", zlib.compress(b"first") + more)
    assert output == b"first"
    assert isinstance(error, CorruptRecordError)
    assert "TensorFlow would stop here" in str(error)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("stream", [b"plain text, and enough of it", bytes(100), b"\xff" * 100])
def test_uncompressed_stream_is_reported_as_corrupt(type: str, stream: bytes) -> None:
    output, error = failing(type, stream)
    assert output == b""
    assert isinstance(error, CorruptRecordError)


@pytest.mark.slow(but=["ZLIB"])
@pytest.mark.parametrize("type", TYPES)
def test_decompression_bomb_is_decompressed_in_small_pieces(type: str) -> None:
    size = 64 << 20
    stream = compress([[bytes(1 << 20)]] * (size >> 20), type=type, member_bytes=size)
    assert len(stream) < size // 200
    decompressor = Decompressor(type)
    decompressor.feed(stream)
    seen = 0
    tracemalloc.start()
    try:
        while data := decompressor.read(1 << 18):
            assert len(data) <= 1 << 18
            seen += len(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    decompressor.finish()
    assert seen == size
    assert peak < 4 << 20


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_read_rejects_non_positive_size(max_bytes: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Decompressor("GZIP").read(max_bytes)


@pytest.mark.parametrize("type", ["", "auto", "gzip"])
def test_decompressor_accepts_only_gzip_and_zlib(type: str) -> None:
    with pytest.raises(ValueError, match="GZIP"):
        Decompressor(type)


# --- detection --------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=2000))
def test_compression_is_detected_from_file_head(record: bytes) -> None:
    frames = b"".join(encode_frames([record]))
    assert detect_compression(frames[:12]) == detect_compression(frames) == ""
    for kind in TYPES:
        stream = compress([[frames]], type=kind)
        assert detect_compression(stream[:12]) == detect_compression(stream) == kind


@pytest.mark.parametrize("window_bits", range(9, 16))
@pytest.mark.parametrize("level", [1, 2, 6, 9])
def test_zlib_is_detected_for_any_window_and_level(window_bits: int, level: int) -> None:
    stream = compress([[TEXT]], type="ZLIB", window_bits=window_bits, level=level)
    assert detect_compression(stream[:12]) == "ZLIB"


def test_plain_length_resembling_magic_is_detected_as_plain() -> None:
    """The first bytes of these lengths look like ZLIB (0x9c78) and GZIP (0x088b1f), so the checksum decides."""
    for length in (0x9C78, 0x088B1F):
        assert detect_compression(b"".join(encode_frames([bytes(length)]))[:12]) == ""


@pytest.mark.parametrize("head", [b"", b"\x78", b"\x1f\x8b", b"%PDF-1.7 and so on", b"\x78\x9d" + bytes(10)])
def test_unknown_head_counts_as_plain(head: bytes) -> None:
    assert detect_compression(head) == ""


# --- options ----------------------------------------------------------------------------------------------------------


class Kind(enum.Enum):
    """The values of TensorFlow's ``TFRecordCompressionType``; their order differs from that in our design."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class IntKind(enum.IntEnum):
    GZIP = 2


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("", ""), (None, ""), ("GZIP", "GZIP"), ("ZLIB", "ZLIB"), (0, ""), (1, "ZLIB"), (2, "GZIP"), (Kind.NONE, ""),
        (Kind.ZLIB, "ZLIB"), (IntKind.GZIP, "GZIP"),
    ],
)  # fmt: skip
def test_compression_is_parsed_from_every_spelling(value: object, type: str) -> None:
    assert parse_compression(value) == CompressionOptions(type=type)  # type: ignore[arg-type]  # a parameter is a str


def test_options_are_stored_unchanged_and_pickle() -> None:
    options = CompressionOptions(type="GZIP", level=9, member_bytes=1000)
    assert parse_compression(options) is options
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (" gzip", 'write it as "GZIP"'),
        ("auto", "for reading"),
        ("bz2", "expected"),
        (3, "0, 2 or 1"),
        (-1, "0, 2 or 1"),
    ],
)
def test_unknown_compression_is_rejected_with_hint(value: object, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_compression(value)


@pytest.mark.parametrize(("value", "kind"), [("gzip", "GZIP"), ("Zlib", "ZLIB"), ("none", ""), ("NONE", "")])
def test_compression_names_are_case_insensitive(value: str, kind: str) -> None:
    assert parse_compression(value) == CompressionOptions(type=kind)


@pytest.mark.parametrize("value", [True, 1.0, b"GZIP", object(), ["GZIP"]])
def test_compression_of_wrong_type_raises_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="expected"):
        parse_compression(value)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"type": "gzip"}, 'write it as "GZIP"'),
        ({"type": "auto"}, "for reading"),
        ({"type": 1}, "expected"),
        ({"level": 1}, 'level=1 requires compression; pass type="GZIP" or type="ZLIB"'),
        ({"type": "GZIP", "level": 10}, "-1 to 9"),
        ({"type": "GZIP", "level": -2}, "-1 to 9"),
        ({"type": "ZLIB", "window_bits": 8}, "9 to 15"),
        ({"type": "GZIP", "window_bits": 31}, "9 to 15"),
        ({"type": "GZIP", "mem_level": 0}, "1 to 9"),
        ({"type": "GZIP", "strategy": 5}, "0 to 4"),
        ({"type": "GZIP", "member_bytes": 0}, "must be at least 1"),
    ],
)
def test_out_of_range_options_are_rejected_with_expected_values(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        CompressionOptions(**options)


def tensorflow_options(**given: object) -> SimpleNamespace:
    """The attributes of ``tf.io.TFRecordOptions`` (2.21): `None` where nothing was given."""
    names = (
        "compression_type", "flush_mode", "input_buffer_size", "output_buffer_size", "window_bits",
        "compression_level", "compression_method", "mem_level", "compression_strategy",
    )  # fmt: skip
    return SimpleNamespace(**(dict.fromkeys(names) | given))


def test_meaningful_tensorflow_options_are_applied() -> None:
    assert parse_compression(tensorflow_options()) == CompressionOptions()
    options = tensorflow_options(
        compression_type=2,
        window_bits=31,
        compression_level=9,
        compression_method=8,
        mem_level=3,
        compression_strategy=1,
    )
    assert parse_compression(options) == CompressionOptions(
        type="GZIP", window_bits=15, level=9, mem_level=3, strategy=1
    )
    assert parse_compression(tensorflow_options(compression_type="ZLIB", compression_level=-1)) == CompressionOptions(
        type="ZLIB", level=-1
    )


@pytest.mark.parametrize("name", ["flush_mode", "input_buffer_size", "output_buffer_size", "compression_method"])
def test_meaningless_tensorflow_options_are_rejected_with_reason(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}=4\b.*:.* \w+"):
        parse_compression(tensorflow_options(compression_type="GZIP", **{name: 4}))


def test_compression_levels_select_supporting_library(engine: str) -> None:
    """zlib marks its fastest and best levels in the GZIP header. Its system is Unix (3); isal's is unknown (255)."""

    def system(**options: Any) -> int:
        return compress([[b"x"]], type="GZIP", **options)[9]

    zlib_s, isal_s = 3, 3 if engine == "zlib" else 255
    assert {level: system(level=level) for level in range(-1, 10)} == {
        level: isal_s if level in (-1, 1, 2, 3) else zlib_s for level in range(-1, 10)
    }
    assert (system(), system(mem_level=9), system(strategy=0)) == (isal_s, zlib_s, zlib_s)


# --- files from TensorFlow --------------------------------------------------------------------------------------------


@pytest.mark.slow(but=["777"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("block", [1, 777, 1 << 20])
def test_tensorflow_compressed_files_are_read(vectors: Path, type: str, block: int) -> None:
    name = f"records-{type.lower()}.tfrecord"
    held = json.loads((vectors / "manifest.json").read_text())["files"][name]
    stream = (vectors / name).read_bytes()
    assert detect_compression(stream[:12]) == type
    records = FrameDecoder().feed(decompress(type, cut(stream, [block] * len(stream))))
    assert [len(record) for record in records] == held["lengths"]
    assert [hashlib.sha256(record).hexdigest() for record in records] == held["sha256"]
