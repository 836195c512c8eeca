"""Checkpoint lines that are damaged, wrong or too large are rejected, and the error names the line."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from asyncrec.errors import ManifestError

from .checkpoints import decoded, encoded, lines_of, made, member, members_of


@pytest.mark.slow
def test_every_truncated_or_changed_byte_is_detected_or_harmless() -> None:
    content = encoded(made(20))
    assert encoded(decoded(content)) == content
    for at in range(len(content)):
        with pytest.raises(ManifestError, match=r"^checkpoint: "):
            decoded(content[:at])
        damaged = content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        with suppress(ManifestError):  # harmless: the time, system and hint fields in each member's header
            assert encoded(decoded(damaged)) == content


def test_damage_in_long_checkpoint_names_line() -> None:
    content = bytearray(encoded(made(5000)))
    content[len(content) // 2] ^= 4
    with pytest.raises(ManifestError, match=r"^checkpoint: line 4: .*damaged"):
        decoded(bytes(content))


@pytest.mark.parametrize("more", [b"more", b"\0", b"\x1f", member(b"{}\n"), encoded(made(1))])
def test_checkpoint_with_trailing_data_is_rejected(more: bytes) -> None:
    with pytest.raises(ManifestError):
        decoded(encoded(made(3)) + more)


def test_content_other_than_checkpoint_is_rejected() -> None:
    content = encoded(made(1))
    for other in (b"x" * 100_000, member(b"a line\n"), member(b'{"version":1}\n'), member(b"\xff\n"), content[20:]):
        with pytest.raises(ManifestError, match=r"^checkpoint: line 1: "):
            decoded(other)
    head, *rest = lines_of(content)
    for version in (2, True):
        with pytest.raises(ManifestError, match="a newer release of asyncrec"):
            decoded(members_of([head | {"version": version}, *rest]))
    with pytest.raises(ManifestError, match="first line"):
        decoded(members_of([*rest, head]))


def without(line: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in line.items() if each != name}


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a bool for a number": ("records", lambda line: line | {"records": [True, 1, 2]}),
    "a constant bool": ("records", lambda line: line | {"records": True}),
    "a float": ("bytes", lambda line: line | {"bytes": [0, 17.0, 34]}),
    "a text": ("crc32c", lambda line: line | {"crc32c": "7"}),
    "no number": ("records", lambda line: line | {"records": None}),
    "a number for a bool": ("live", lambda line: line | {"live": 1}),
    "too large for its type": ("crc32c", lambda line: line | {"crc32c": [0, 1 << 32, 0]}),
    "too large for any": ("bytes", lambda line: line | {"bytes": [1 << 80, 0, 0]}),
    "negative": ("records", lambda line: line | {"records": -1}),
    "a time that is none": ("committed", lambda line: line | {"committed": 1 << 62}),
    "a commit that is not there": ("commit", lambda line: line | {"commit": 1}),
    "a value that is not there": ("extra", lambda line: line | {"extra": 0}),
    "a name that is not there": ("index", lambda line: line | {"index": 0}),
    "a compression that is none": ("range", lambda line: line | {"flags": 3}),
    "a row too few": ("records", lambda line: line | {"records": [0, 1]}),
    "a row too many": ("records", lambda line: line | {"records": [0, 1, 2, 3]}),
    "no rows": ("0 rows", lambda line: line | {"path": []}),
    "a path for all": ("0 rows", lambda line: line | {"path": "p"}),
    "a path that is a number": ("path", lambda line: line | {"path": ["a", "b", 1]}),
    "paths out of order": ("order", lambda line: line | {"path": ["a", "c", "b"]}),
    "a path with a NUL": ("NUL", lambda line: line | {"path": ["a", "b", "c\0d"]}),
    "a path that UTF-8 cannot hold": ("UTF-8", lambda line: line | {"path": ["a", "b", "c\ud800"]}),
    "a path without letters": ("leads out", lambda line: line | {"path": ["", "b", "c"]}),
    "a column too few": ("columns", lambda line: without(line, "keys")),
    "a column too many": ("columns", lambda line: line | {"more": 1}),
    "a kind that is none": ("place", lambda line: line | {"kind": "more"}),
    "a kind that is not a text": ("place", lambda line: line | {"kind": []}),
    "no kind": ("place", lambda line: without(line, "kind")),
    "a kind out of order": ("place", lambda line: {"kind": "writers", "writer": ["w"]}),
}


@pytest.mark.parametrize("what", WRONG)
def test_invalid_line_is_rejected_with_line_number(what: str) -> None:
    said, change = WRONG[what]
    lines = lines_of(encoded(made(3)))
    assert lines[3]["kind"] == "shards"
    decoded(members_of(lines))
    lines[3] = change(lines[3])
    with pytest.raises(ManifestError, match=rf"^checkpoint: line 4: .*{said}"):
        decoded(members_of(lines))


@pytest.mark.parametrize("number", range(1, 6))
def test_missing_or_repeated_line_is_rejected(number: int) -> None:
    lines = lines_of(encoded(made(4100)))
    for others in (lines[:number] + lines[number + 1 :], lines[: number + 1] + lines[number:]):
        with pytest.raises(ManifestError):
            decoded(members_of(others))


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"writers","writer":["w"]}',
        b'{"kind":"writers","writer":["w"]}\n\n',
        b'{"kind":"writers",\n"writer":["w"]}\n',
        b'{"kind":"writers","writer":["w"]}}\n',
        b'{"kind":"writers","kind":"writers","writer":["w"]}\n',
        b'{"kind":"writers","writer":["w"],}\n',
        b'{"kind":"writers","writer"["w"]}\n',
        b'{"kind":"writers",1:["w"]}\n',
        b'["kind","writers"]\n',
        b'{"kind":"writers","writer":["w"\n',
        b"{\n",
        b"\n",
    ],
)
def test_member_must_hold_one_line_of_json(line: bytes) -> None:
    head, _, *rest = lines_of(encoded(made(3)))
    with pytest.raises(ManifestError, match=r"^checkpoint: line 2: "):
        decoded(members_of([head]) + member(line, 0) + members_of(rest))


BOMBS = {
    "empty objects": b'{"kind":"values","value":[' + b"{}," * 4095 + b"{}]}\n",
    "arrays": b'{"kind":"values","value":[' + b"[]," * 1_000_000 + b"[]]}\n",
    "depth": b'{"kind":"values","value":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}\n",
    "numbers": b'{"kind":"commits","writer":[' + b"0," * 1_000_000 + b"0]}\n",
    "one text": b'{"kind":"writers","writer":["' + b"w" * 4_000_000 + b'"]}\n',
    "17 MiB": b" " * (17 << 20),
}


@pytest.mark.parametrize("what", BOMBS)
def test_line_decoding_memory_is_proportional_to_size(what: str) -> None:
    content = members_of([lines_of(encoded(made(1)))[0]]) + member(BOMBS[what], 9)
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError, match=r"^checkpoint: line 2: .*(expand to more|more than 16,777,216 bytes)"):
            decoded(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(BOMBS[what]) + (1 << 20)


def test_line_with_too_many_rows_is_rejected() -> None:
    head = lines_of(encoded(made(1)))[0]
    rng = random.Random(1)
    writers = [f"{rng.getrandbits(32):08x}" for _ in range(4097)]
    with pytest.raises(ManifestError, match="the checkpoint is truncated"):
        decoded(members_of([head, {"kind": "writers", "writer": writers[:4096]}]))
    with pytest.raises(ManifestError, match="line 2: 4,097 rows"):
        decoded(members_of([head, {"kind": "writers", "writer": writers}]))
