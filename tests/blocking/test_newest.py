"""Blocking access to newest versions: look-ups, listings and streams, from several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asyncrec import blocking, decode_example, encode_example


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Write 50 pages in two versions; for every other page, the second version is newer."""
    for turn in range(2):
        with blocking.open_sharded_writer(tmp_path / "pages", max_shard_records=20, on_duplicate="write") as writer:
            for page in range(50):
                record = {"n": 50 * turn + page, "date": turn if page % 2 else -turn}
                writer.write(encode_example(record), key=f"page {page}")
    return tmp_path / "pages"


NEWEST = [*range(0, 50, 2), *range(51, 100, 2)]


def number(record: bytes) -> int:
    return int(decode_example(record)["n"][0])


@pytest.mark.parametrize("first", ["a look-up", "a stream"])
def test_newest_records_are_found_from_several_threads(pages: Path, first: str) -> None:
    with blocking.open_dataset(pages, newest="date") as dataset:
        if first == "a stream":
            with dataset.shuffled(seed=1) as stream:
                assert sorted(map(number, stream)) == sorted(NEWEST)

        def look(page: int) -> tuple[int, int, list[int]]:
            key = f"page {page}"
            found = number(dataset.get(dataset.find(key)))
            return number(dataset.get_by_key(key)), found, [number(record) for record in dataset.history(key)]

        with ThreadPoolExecutor(4) as pool:
            for page, (newest, found, history) in enumerate(pool.map(look, range(50))):
                versions = [page, page + 50] if page % 2 else [page + 50, page]
                assert (newest, found, history) == (versions[1], versions[1], versions)
        assert [number(record) for record in dataset] == sorted(NEWEST, key=lambda each: number_of(dataset, each))
        assert len(dataset) == 100
        with pytest.raises(KeyError):
            dataset.history("none")


def number_of(dataset: blocking.Dataset, wanted: int) -> int:
    """Return the number of a record in the data set."""
    return [number(record) for record in dataset[:]].index(wanted)


def test_history_follows_commit_order(pages: Path) -> None:
    with blocking.open_dataset(pages) as dataset:
        assert [number(record) for record in dataset.history("page 4")] == [4, 54]
        assert number(dataset.get_by_key("page 4")) == 4
        assert [number(record) for record in dataset.history("page 5")] == [5, 55]
