"""`asyncrec.parse_split`: parts of splits written as text, and the records they select in splits of a known size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.manifest.splits import Bound, Split, SplitPart, parse_split

COUNTS = {"train": 1000, "test": 60, "extra": 25, "empty": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train", [("train", 0, 1000)]),
        ("train[:]", [("train", 0, 1000)]),
        ("train[:80%]+extra[10:20]", [("train", 0, 800), ("extra", 10, 20)]),
        ("test[:-5%]+train[40%:60%]", [("test", 0, 57), ("train", 400, 600)]),
        ("train[-10%:]", [("train", 900, 1000)]),
        ("train[-100:-50]", [("train", 900, 950)]),
        (" train [ 1_0 : 20 % ] + test ", [("train", 10, 200), ("test", 0, 60)]),
        ("train[0:0]", [("train", 0, 0)]),
        ("train[:-0%]", [("train", 0, 0)]),
        ("empty", [("empty", 0, 0)]),
        ("empty[50%:]", [("empty", 0, 0)]),
        ("extra[:1000%]", None),
        ("train+train[:1]", [("train", 0, 1000), ("train", 0, 1)]),
    ],
)
def test_split_text_resolves_to_record_ranges(text: str, expected: list[tuple[str, int, int]] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="percentages go from"):
            parse_split(text)
    else:
        assert parse_split(text).resolve(COUNTS) == expected


@pytest.mark.parametrize(
    ("records", "percent", "position"),
    [(999, 33, 330), (10, 25, 2), (10, 75, 8), (10, 35, 4), (30, 5, 2), (50, 5, 2), (70, 5, 4), (7, 50, 4), (3, 1, 0)],
)
def test_split_percentages_round_half_to_even(records: int, percent: int, position: int) -> None:
    """TFDS rounds in the same way: ``int(round(percent * records / 100.))``."""
    assert position == round(percent * records / 100.0)
    assert parse_split(f"train[:{percent}%]").resolve({"train": records}) == [("train", 0, position)]


@pytest.mark.parametrize(
    "text",
    ["", "train[", "train[5]", "train[1:2:3]", "train[a:]", "train]", "tr ain", "+train", "train+", "../x", "_train",
     "train[1.5%:]", "train[1__0:]", "train[:5%%]", "train[0x10:]", "a/b", "train[:5][:3]", "train[+5:]"],
)  # fmt: skip
def test_malformed_split_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid (part of a split|bound)"):
        parse_split(text)


def test_unknown_split_error_lists_existing_splits() -> None:
    with pytest.raises(ValueError, match="there is no split 'val'; the splits are: 'empty', 'extra', 'test', 'train'"):
        parse_split("train+val[:5]").resolve(COUNTS)
    with pytest.raises(ValueError, match="the splits are: none"):
        parse_split("val").resolve({})


@pytest.mark.parametrize("text", ["extra[:26]", "extra[26:]", "extra[-26:]"])
def test_bound_beyond_split_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is out of range, because 'extra' has only 25 records"):
        parse_split(text).resolve(COUNTS)


def test_split_part_ending_before_its_start_is_rejected() -> None:
    with pytest.raises(ValueError, match="ends before it begins: 800 to 200 of 1000"):
        parse_split("train[80%:20%]").resolve(COUNTS)


def test_parsed_split_exposes_names_and_parts() -> None:
    split = parse_split("train[:80%]+extra+train[-5:]")
    assert split.names == ("train", "extra")
    assert split.parts[0] == SplitPart("train", None, Bound(80, percent=True))
    assert split.parts[2] == SplitPart("train", Bound(-5), None)


bounds = st.none() | st.builds(Bound, st.integers(-100, 100), st.booleans())
parts = st.builds(SplitPart, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.\-]*", fullmatch=True), bounds, bounds)


@given(st.builds(Split, st.lists(parts, min_size=1, max_size=4).map(tuple)))
def test_split_text_parses_to_equal_split(split: Split) -> None:
    assert parse_split(str(split)) == split


@given(st.integers(0, 10_000), st.integers(-100, 100), st.booleans())
def test_adjacent_parts_cover_split_exactly(records: int, value: int, percent: bool) -> None:
    bound = Bound(value, percent)
    if not percent and abs(value) > records:
        return
    text = f"train[:{bound}]+train[{bound}:]"
    (_, begin, middle), (_, same, end) = parse_split(text).resolve({"train": records})
    assert (begin, middle, end) == (0, same, records)
