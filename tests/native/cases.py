"""A random case for each C function, with a comparison of the results of C and Python."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from random import Random
from typing import Any
from unittest import mock

import crc32c as package
import numpy as np

from asyncrec._framing import frames, measuring
from asyncrec._framing.encoding import encode_frames, encode_frames_in_python
from asyncrec._framing.frames import FrameDecoder
from asyncrec._framing.measuring import FrameMeter
from asyncrec._native import native
from asyncrec._records import index_columns
from asyncrec._records.index import RecordIndex, encode_index_in_python, parse_index, parse_index_in_python
from asyncrec._records.record_size import fitting_in_python, lengths_of_in_python, pack_lengths
from asyncrec._shards.writing.keys import join_digests_in_python, key_digest_in_python, key_digests_in_python
from asyncrec.errors import DecodeError, FormatError, SchemaError
from asyncrec.example import _codec, _varints, _wire
from asyncrec.example._codec import encode_example
from asyncrec.example._columns import Column, JoinedBytes, column_of, read_columns, read_columns_in_python
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE, Raw, parse_example

from .messages import some_example, varint
from .values import some_features

assert native is not None, "there is no C to try"

# Sizes around all thresholds in the C and Python code.
SIZES = (0, 1, 7, 8, 9, 127, 128, 383, 384, 385, 4031, 4032, 4033, 65_535, 65_536, 65_537)


def outcome(function: Callable[[], Any], *refusals: type[BaseException]) -> Any:
    """Return a function's result, or the type and message of its error."""
    try:
        return function()
    except refusals as error:
        return type(error), str(error)


def some_bytes(random: Random, most: int = 300) -> bytes:
    size = random.choice(SIZES) if random.random() < 0.02 else random.randrange(most)
    return random.randbytes(size)


def damaged(random: Random, data: bytes) -> bytes:
    """Return the data, often unchanged, or else with a few bytes changed, removed or added."""
    changed = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        match random.randrange(5):
            case 0 if at < len(changed):
                changed[at] = random.choice((0, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 1 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                del changed[at : at + random.randrange(20)]
            case 3:
                changed[at:at] = random.randbytes(random.randrange(20))
            case _:
                del changed[at:]
    return bytes(changed)


def crc32c(random: Random) -> None:
    data = memoryview(some_bytes(random, 3000))[random.randrange(9) :]
    value = random.choice((0, random.getrandbits(32)))
    expected = package.crc32c(data, value)
    assert native.crc32c(data, value) == expected
    assert native.crc32c_by_tables(data, value) == expected
    assert native.crc32c(bytes(data), value) == expected


def crc64nvme(random: Random) -> None:
    data = memoryview(some_bytes(random, 900))[random.randrange(9) :]
    register = (1 << 64) - 1
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x9A6C9329AC4BC9B5 if register & 1 else 0)
    expected = register ^ (1 << 64) - 1
    assert native.crc64nvme(data) == expected
    assert native.crc64nvme_by_tables(data) == expected


def frames_encoded(random: Random) -> None:
    records = [some_bytes(random) for _ in range(random.choice((0, 1, 2, 31, 32, 33, 60)))]
    assert list(map(bytes, encode_frames(records))) == list(map(bytes, encode_frames_in_python(records)))


def frames_cut(random: Random) -> None:
    stream, options = some_stream(random)
    at = random.randrange(len(stream) + 1)

    def decoded() -> Any:
        decoder, found = FrameDecoder(**options), []
        for piece in (stream[:at], stream[at:]):
            if decoder.error is None:
                found += decoder.feed(piece)
        end = outcome(decoder.finish, FormatError)
        return found, decoder.offset, decoder.records, end

    in_c = decoded()
    with mock.patch.object(frames, "native", None):
        assert decoded() == in_c


def frames_measured(random: Random) -> None:
    """Compare with the lengths of the records when they are cut."""
    stream, options = some_stream(random)
    at = random.randrange(len(stream) + 1)

    def measured(meter: FrameDecoder, lengths: Callable[[bytes], list[int]]) -> Any:
        found: list[int] = []
        for piece in (stream[:at], stream[at:]):
            if meter.error is None:
                found += lengths(piece)
        remains = b"".join(meter.take_remains())
        return found, meter.offset, meter.records, remains, outcome(meter.finish, FormatError)

    decoder, meter = FrameDecoder(**options), FrameMeter(**options)
    cut = measured(decoder, lambda piece: [*map(len, decoder.feed(piece))])
    assert measured(meter, lambda piece: meter.measure(piece).tolist()) == cut
    in_python = FrameMeter(**options)
    with mock.patch.object(frames, "native", None), mock.patch.object(measuring, "native", None):
        assert measured(in_python, lambda piece: in_python.measure(piece).tolist()) == cut


def some_stream(random: Random) -> tuple[bytes, dict[str, Any]]:
    """Return intact or damaged frames, and options for reading them."""
    records = [some_bytes(random) for _ in range(random.choice((0, 1, 2, 31, 32, 33, 60)))]
    stream = b"".join(encode_frames(records))
    if random.random() < 0.1:  # a wrong length with a valid checksum
        length = struct.pack("<Q", random.choice((2**64 - 1, 2**63, 2**62, 2**32, len(stream), len(stream) + 16)))
        stream += length + struct.pack("<I", frames.masked_crc32c(length)) + random.randbytes(random.randrange(40))
    stream = damaged(random, stream) if random.random() < 0.7 else stream
    return stream, {"verify": random.random() < 0.8, "max_record_bytes": random.choice((0, 100, 2**28, 2**70))}


def example_columns(random: Random) -> None:
    """Compare with each record read on its own, and with NumPy if all are valid: it skips damage in other features."""
    most = random.choice((1, 2, 3, 8))
    forms = [some_example(random, most) for _ in range(random.choice((1, 1, 2, 5, 40)))]
    records = [random.choice(forms) for _ in range(random.choice((0, 1, 3, 30, 60)))]
    for _ in range(random.choice((0, 0, 1, 3)) if records else 0):
        at = random.randrange(len(records))
        records[at] = damaged(random, records[at])
    names = random.sample(("a", "bb", "name", "a rather long name of a feature", "é"), random.randrange(1, 5))
    wanted = {name: random.choice((BYTES, FLOAT, INT64)) for name in names}
    joined = [name for name, kind in wanted.items() if kind == BYTES and random.random() < 0.5]
    strict = random.random() < 0.3
    checked = []

    def check(features: Mapping[str, Raw], row: int) -> None:
        checked.append(row)
        for name, (kind, _) in features.items():
            if kind != NONE and kind != wanted.get(name, kind):
                raise SchemaError(f"record {row} of the batch: {name!r}")
            if strict and name not in wanted:
                raise SchemaError(f"record {row} of the batch: no {name!r}")

    def alone() -> Any:
        columns: dict[str, tuple[list[Any], list[int]]] = {name: ([], []) for name in wanted}
        for row, record in enumerate(records):
            try:
                features = parse_example(record)
                check(features, row)
                for name, kind in wanted.items():
                    _, flat, counts = column_of(kind, [features.get(name)])
                    columns[name][0].extend(flat if kind == BYTES else flat.view("i4").tolist())
                    columns[name][1].extend(counts.tolist())
            except DecodeError as error:
                raise DecodeError(f"record {row} of the batch: {error}") from None
        return columns

    def together(read: Callable[..., Any]) -> Any:
        columns = read(records, wanted, check, joined)
        assert all(isinstance(columns[name].flat, JoinedBytes) for name in joined)
        return {name: (values_of(column), column.counts.tolist()) for name, column in columns.items()}

    def values_of(column: Column) -> list[Any]:
        if isinstance(column.flat, JoinedBytes):
            return column.flat.to_list()
        return list(column.flat if column.kind == BYTES else column.flat.view("i4").tolist())

    expected = outcome(alone, DecodeError, SchemaError)
    checked.clear()
    found = outcome(lambda: together(read_columns), DecodeError, SchemaError)
    assert checked == sorted(checked)
    if isinstance(expected, dict):
        assert found == expected
        assert outcome(lambda: together(read_columns_in_python), DecodeError, SchemaError) == expected
    else:  # otherwise, the same kind of error about the same record
        assert found[0] is expected[0], (found, expected)
        assert found[1].split(":")[0] == expected[1].split(":")[0], (found, expected)


def example_parsed(random: Random) -> None:
    data = some_example(random, random.choice((1, 3, 8)))
    data = damaged(random, data) if random.random() < 0.3 else data
    in_c = outcome(lambda: list(parse_example(data).items()), DecodeError)
    with mock.patch.object(_wire, "native", None):
        assert outcome(lambda: list(parse_example(data).items()), DecodeError) == in_c, data


def numbers_parsed(random: Random) -> None:
    numbers = [
        random.choice((random.randrange(200), random.getrandbits(64))) for _ in range(random.choice((0, 1, 2, 70)))
    ]
    packed = b"".join([varint(number, extra=random.choice((0, 0, 0, 1, 9))) for number in numbers])
    packed = damaged(random, packed) if random.random() < 0.3 else packed

    def parsed() -> Any:
        return outcome(lambda: int64_values(packed).tolist(), DecodeError)

    in_c = parsed()
    with mock.patch.object(_varints, "native", None):
        assert parsed() == in_c, packed
    if isinstance(in_c, list) and in_c:
        int64_values(bytearray(packed))[0] = 1  # the result is writable


def example_encoded(random: Random) -> None:
    features, narrow = some_features(random), random.random() < 0.8

    def encoded() -> Any:
        return outcome(lambda: encode_example(features, narrow=narrow), Exception)

    in_c = encoded()
    with mock.patch.object(_codec, "native", None):
        assert encoded() == in_c, features
    if isinstance(in_c, bytes):
        parse_example(in_c)


def keys_digested(random: Random) -> None:
    keys: list[Any] = [_key(random) for _ in range(random.randrange(6))]
    for key in keys:
        assert native.key_digest(key) == key_digest_in_python(key)
    assert native.key_digests(keys) == key_digests_in_python(keys)


def digests_joined(random: Random) -> None:
    """Compare for up to 12 keys, enough to fill a processor's SIMD lanes; a few keys are digests already."""
    keys = [_key(random) for _ in range(random.randrange(13))]
    keys = [bytearray(random.randbytes(16)) if isinstance(key, (bytearray, memoryview)) else key for key in keys]
    if keys and random.random() < 0.05:
        keys[random.randrange(len(keys))] = random.choice((7, None))
        for join in (native.join_digests, join_digests_in_python):
            assert outcome(lambda join=join: join(keys), TypeError, AttributeError)[0] in (TypeError, AttributeError)
        return
    assert native.join_digests(keys) == join_digests_in_python(keys)


def batches_measured(random: Random) -> None:
    records: list[Any] = [some_bytes(random) for _ in range(random.choice((0, 1, 2, 30, 60)))]
    assert native.lengths_of(records) == lengths_of_in_python(records)
    if records and random.random() < 0.3:
        other = random.choice((bytearray(3), memoryview(b"abc"), 7, None, type("Sub", (bytes,), {})(b"abc")))
        records[random.randrange(len(records))] = other
    begin = random.randrange(len(records) + 2)
    most, longest = random.choice((0, 16, 300, 3000, 1 << 40)), random.choice((0, 5, 290, 1 << 40))
    assert native.fitting(records, begin, most, longest) == fitting_in_python(records, begin, most, longest)


def index_encoded(random: Random) -> None:
    sizes = [random.choice((0, 1, 83, 84, 983, 984, random.randrange(1 << 40))) for _ in range(random.randrange(12))]
    lengths, start = pack_lengths(sizes), random.choice((0, 9, 10, 99, 100, random.randrange(1 << 50)))
    for member in (None, random.choice((0, 7, 10, 1234, random.randrange(1 << 50)))):
        expected = encode_index_in_python(start, lengths, member=member)
        assert native.encode_index(start, lengths, -1 if member is None else member) == expected


def some_index(random: Random) -> RecordIndex:
    """Return an index with sizes of every width, in one run or several."""
    most = random.choice((200, 1 << 15, 1 << 17, 1 << 31, 1 << 40))
    sizes = np.array([16 + random.randrange(most) for _ in range(random.choice((1, 2, 31, 32, 33, 90)))], np.int64)
    if random.random() < 0.5:
        return RecordIndex.of_sizes(sizes)
    ends = np.cumsum(sizes).tolist()
    begins = sorted({0, *(random.choice(ends) - random.choice((0, 0, 3)) for _ in range(random.randrange(6)))})
    return RecordIndex.of_sizes(sizes, [(7 * at, begin) for at, begin in enumerate(begins)])


def index_parsed(random: Random) -> None:
    text = some_index(random).encode()
    if random.random() < 0.7:
        text = damaged(random, text)
    if random.random() < 0.2:
        text = text.replace(b" ", random.choice((b"\t", b"  ", b" 9", b" 999999999999999999")), random.randrange(1, 9))

    def parsed(parse: Callable[[bytes], RecordIndex]) -> Any:
        index = outcome(lambda: parse(text), FormatError)
        return index if isinstance(index, tuple) else (index.nbytes, index.sizes.tolist(), index.runs.tolist())

    assert parsed(parse_index) == parsed(parse_index_in_python), text


def index_asked(random: Random) -> None:
    index = some_index(random)
    within = np.sort(np.array([random.randrange(len(index)) for _ in range(random.randrange(9))], np.int64))
    if random.random() < 0.1:
        within = np.append(within, random.choice((-1, len(index), 1 << 62)))

    def asked() -> Any:
        offsets = outcome(lambda: index.offsets[within].tolist(), IndexError)
        return offsets if isinstance(offsets, tuple) else (offsets, list(map(index.offsets.item, within.tolist())))

    in_c = asked()
    with mock.patch.object(index_columns, "native", None):
        assert asked() == in_c
    if in_c[0] is not IndexError:
        whole = np.asarray(index.offsets)[within].tolist()
        assert in_c == (whole, whole)


def _key(random: Random) -> Any:
    size = random.choice((0, 1, 20, 127, 128, 129, 255, 256, 257, 1000, random.randrange(600)))
    match random.randrange(4):
        case 0:
            return "".join(random.choice("a/é\U0001f600\ud800") for _ in range(size // 2))
        case 1:
            return "https://example.org/" + "x" * size
        case 2:
            return random.choice((bytearray, memoryview))(random.randbytes(size))
        case _:
            return random.randbytes(size)
