"""`asyncrec._shards.writing.keys`: the digests of keys, and sets of digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._native import native
from asyncrec._shards.writing.keys import (
    NO_KEY,
    KeySet,
    key_digest,
    key_digest_in_python,
    key_digests,
    key_digests_in_python,
    partition_of,
)

WAYS = [
    # Without a compiler there is only the Python implementation, and both ids say so.
    pytest.param((key_digest, key_digests), id="c" if native else "python"),
    pytest.param((key_digest_in_python, key_digests_in_python), id="python"),
]
Ways = tuple[Callable[[str | bytes], bytes], Callable[[Iterable[str | bytes]], list[bytes]]]


@pytest.mark.parametrize("ways", WAYS)
def test_text_and_its_utf8_bytes_are_same_key(ways: Ways) -> None:
    digest, _ = ways
    assert digest("é") == digest("é".encode())
    assert digest("\ud800") == digest("\ud800".encode("utf-8", "surrogatepass"))
    assert len(digest("")) == 16


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("wrong", [5, None, ["a"]])
def test_key_digest_rejects_wrong_types(ways: Ways, wrong: object) -> None:
    digest, digests = ways
    with pytest.raises(TypeError):
        digest(wrong)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError):
        digests(["good", wrong])  # type: ignore[list-item]  # the mistake


@given(st.lists(st.text() | st.binary(max_size=400)))
def test_batch_digests_equal_single_digests(keys: list[str | bytes]) -> None:
    expected = [key_digest_in_python(key) for key in keys]
    assert key_digests(keys) == key_digests(iter(keys)) == [key_digest(key) for key in keys] == expected


def test_digest_never_changes_between_releases() -> None:
    assert key_digest("https://example.invalid/").hex() == "512204c28b3313229955d150b39a0f67"
    assert [partition_of(value, 8) for value in ("os", b"os", "email", 7, "7")] == [7, 7, 4, 6, 6]


@given(st.lists(st.binary(max_size=3), max_size=80), st.lists(st.binary(max_size=3), max_size=40))
def test_key_set_matches_model_set(added: list[bytes], loaded: list[bytes]) -> None:
    found = KeySet()
    found.add_files([b"".join(key_digest(key) for key in loaded), NO_KEY * 3, b""])
    model = {key_digest(key) for key in loaded}
    assert len(found) == len(model)
    for key in added:
        digest = key_digest(key)
        assert found.add(digest) == (digest not in model)
        model.add(digest)
        assert digest in found
    assert len(found) == len(model)
    assert NO_KEY not in found


def test_key_set_distinguishes_digests_sharing_first_half() -> None:
    found = KeySet()
    found.add_files([b"same....one....." + b"same....two....."])
    assert b"same....one....." in found
    assert b"same....two....." in found
    assert b"same....three..." not in found


def test_torn_keys_file_is_rejected() -> None:
    with pytest.raises(ValueError, match="17 bytes of keys are not a multiple of 16"):
        KeySet().add_files([b"x" * 17])
