"""A storage's options are checked by name and type, and error messages never reveal their values."""

from __future__ import annotations

from typing import Any

import pytest

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage.http import check_options

TYPES: dict[str, Any] = {"chunk_size": int, "key": str | None}


def test_valid_options_are_accepted() -> None:
    check_options("store", {"chunk_size": 1, "key": None}, TYPES)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"kee": "c4n4ry"}, ArgumentTypeError, "store has no option kee; the options are chunk_size, key"),
        ({"key": b"c4n4ry"}, ArgumentTypeError, "the option key of store must be str | None, not bytes"),
        ({"chunk_size": "c4n4ry"}, ArgumentTypeError, "the option chunk_size of store must be int, not str"),
        ({"key": "c4n4ry\n"}, ArgumentValueError, "the option key of store contains a control character"),
        ({"key": "c4n4ry\x7f"}, ArgumentValueError, "the option key of store contains a control character"),
    ],
)
def test_invalid_options_are_rejected(given: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as raised:
        check_options("store", given, TYPES)
    assert str(raised.value).startswith(words)
    assert "c4n4ry" not in str(raised.value)
