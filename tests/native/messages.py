"""Serialized Examples in all forms that protobuf allows, mostly in the usual form."""

from __future__ import annotations

import struct
from random import Random

__all__ = ["some_example", "varint"]

_NAMES = ("a", "bb", "name", "a rather long name of a feature", "é", "", "nobody's")


def some_example(random: Random, most: int = 4) -> bytes:
    """Return an Example with at most ``most`` features."""
    odd = random.random() < 0.3
    body = b"".join([_entry(random, odd) for _ in range(random.randrange(most + 1))])
    if odd and random.random() < 0.3:  # in two pieces, which protobuf merges
        body = _field(random, 1, body, odd) + _unknown(random)
        return body + _field(random, 1, _entry(random, odd), odd)
    return _field(random, 1, body, odd) + (_unknown(random) if odd and random.random() < 0.2 else b"")


def varint(value: int, *, extra: int = 0) -> bytes:
    """Encode an integer with ``extra`` more bytes than it needs."""
    out = bytearray()
    while value >= 0x80 or extra > 0:
        out.append(value & 0x7F | 0x80)
        value >>= 7
        extra -= value == 0
    out.append(value)
    return bytes(out)


def _field(random: Random, number: int, body: bytes, odd: bool) -> bytes:
    extra = random.randrange(6) if odd and random.random() < 0.1 else 0
    tag = varint(number << 3 | 2, extra=odd and random.random() < 0.05)
    return tag + varint(len(body), extra=extra) + body


def _entry(random: Random, odd: bool) -> bytes:
    name = random.choice(_NAMES[: random.choice((3, 5, 7))]).encode()
    if odd and random.random() < 0.05:
        name = random.randbytes(3)
    parts = [_field(random, 1, name, odd), _field(random, 2, _feature(random, odd), odd)]
    if odd and random.random() < 0.2:
        parts.append(random.choice((_unknown(random), _field(random, 2, _feature(random, odd), odd), parts[0])))
        random.shuffle(parts)
    return _field(random, 1, b"".join(parts), odd)


def _feature(random: Random, odd: bool) -> bytes:
    lists = [_list(random, odd)]
    if odd and random.random() < 0.2:
        lists.append(_list(random, odd))
    if random.random() < 0.1:
        lists = []
    return b"".join(lists)


def _list(random: Random, odd: bool) -> bytes:
    kind, count = random.randrange(1, 4), random.choice((0, 1, 1, 1, 2, 5, 70))
    if kind == 1:
        body = b"".join([_field(random, 1, random.randbytes(random.randrange(9)), odd) for _ in range(count)])
        return _field(random, kind, body, odd)
    values = [_number(random, kind) for _ in range(count)]
    body = _field(random, 1, b"".join(values), odd) if values or random.random() < 0.2 else b""
    if odd and random.random() < 0.3:  # not packed, or only in part
        tag = varint(1 << 3 | (5 if kind == 2 else 0))
        body = b"".join([tag + value for value in values]) + (body if random.random() < 0.3 else b"")
    if odd and random.random() < 0.1:
        body += _unknown(random)
    return _field(random, kind, body, odd)


def _number(random: Random, kind: int) -> bytes:
    if kind == 2:
        return struct.pack("<f", random.uniform(-9, 9)) if random.random() < 0.9 else random.randbytes(4)
    value = random.choice((random.randrange(3), random.randrange(1000), random.getrandbits(64)))
    return varint(value, extra=random.choice((1, 9, 10)) if random.random() < 0.02 else 0)


def _unknown(random: Random) -> bytes:
    number = random.choice((3, 15, 16, 1000))
    match random.randrange(5):
        case 0:
            return varint(number << 3) + varint(random.getrandbits(random.choice((7, 64))))
        case 1:
            return varint(number << 3 | 1) + random.randbytes(8)
        case 2:
            return varint(number << 3 | 5) + random.randbytes(4)
        case 3:
            return varint(number << 3 | 3) + _unknown(random) + varint(number << 3 | 4)
        case _:
            return varint(number << 3 | 2) + varint(3) + random.randbytes(3)
