"""Tables on disk find exactly the digests that were added, no matter how many tables were merged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.writing import digest_tables
from asyncrec._shards.writing.digest_tables import DigestTables, Rows
from asyncrec._shards.writing.known_contents import Body, KnownContents

_DIGESTS = st.binary(min_size=16, max_size=16).filter(any)


def rows(digests: list[bytes], first: int) -> Rows:
    pairs = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    return Rows.of(pairs, np.arange(first, first + len(digests), dtype=np.uint64))


@pytest.fixture(params=[0, 1 << 16], ids=["on disk", "in memory"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_tables, "_SMALL", request.param)


@pytest.mark.usefixtures("small")
@given(st.lists(st.lists(st.one_of(_DIGESTS, st.integers(1, 9).map(lambda n: bytes(8) + bytes([n]) * 8)))))
def test_table_lookup_matches_dictionary(parts: list[list[bytes]]) -> None:
    tables, known = DigestTables(), dict[bytes, list[int]]()
    for part in parts:
        if part:
            tables.add(rows(part, len(known) * 10))
            for number, digest in enumerate(part, len(known) * 10):
                known.setdefault(digest, []).append(number)
    others = [digest[::-1] for digest in known]
    asked = [*known, *others, bytes(16)]
    for digest, value in zip(asked, tables.find(asked), strict=True):
        assert value in known[digest] if digest in known else value is None


@pytest.mark.anyio
async def test_writer_keeps_few_bodies_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec._shards.writing.known_contents._MOST_NEW", 10)
    monkeypatch.setattr(digest_tables, "_SMALL", 5)
    contents = KnownContents()
    bodies = {n.to_bytes(16, "big"): Body(f"http://{n}", "today", "", f"sha1:{n}", "", n, n % 3) for n in range(1, 500)}
    try:
        for digest, body in bodies.items():
            assert await contents.find(digest) is None
            contents.add(digest, body)
        await contents.ask(list(bodies))
        assert [await contents.find(digest) for digest in bodies] == list(bodies.values())
        long = Body("http://" + "u" * 70_000, "", "", "", "")
        contents.add(bytes([7]) * 16, long)
        for number in range(20):
            contents.add(bytes([8, number]) * 8, long)
            await contents.find(bytes([9]) * 16)
        assert await contents.find(bytes([7]) * 16) is None  # too long to be remembered, so it is stored again
    finally:
        contents.close()
