"""The valid names and positions of a source of records."""

from __future__ import annotations

from typing import Any

import pytest

from asyncrec._shards.ownership.sources import check_position, check_source
from asyncrec.errors import ArgumentTypeError, ArgumentValueError


@pytest.mark.parametrize("source", ["a", "topic/3", "ä" * 256, "a b", "\N{GRINNING FACE}" * 128])
def test_source_name_may_be_any_short_text(source: str) -> None:
    assert check_source(source) == source


@pytest.mark.parametrize("source", ["", "a" * 513, "ä" * 257, "a\n", "\0", "\x7f", "\x85", "\ud800"])
def test_invalid_source_name_is_rejected(source: str) -> None:
    with pytest.raises(ArgumentValueError, match="source="):
        check_source(source)


@pytest.mark.parametrize("source", [None, 3, b"topic"])
def test_source_name_must_be_text(source: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="source="):
        check_source(source)


@pytest.mark.parametrize("position", [0, 1, (1 << 63) - 1])
def test_position_must_be_63_bit_integer(position: int) -> None:
    assert check_position(position) == position


@pytest.mark.parametrize("position", [-1, 1 << 63])
def test_out_of_range_position_is_rejected(position: int) -> None:
    with pytest.raises(ArgumentValueError, match="position="):
        check_position(position)


@pytest.mark.parametrize("position", [None, True, 1.0, "1"])
def test_position_of_wrong_type_is_rejected(position: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="position="):
        check_position(position)
