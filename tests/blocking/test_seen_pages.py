"""A blocking writer with ``seen=`` stores the same revisits from any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from asyncrec import blocking, pages
from asyncrec.errors import ArgumentError

OPTIONS: dict[str, Any] = {"schema": pages.PAGE, "key_feature": "url", "on_duplicate": "skip", "seen": "digest"}


def page(url: str, body: bytes) -> dict[str, Any]:
    return pages.page(f"http://{url}", body, status=200)


def test_threads_store_each_body_once(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages", **OPTIONS) as writer, ThreadPoolExecutor(4) as threads:
        tickets = list(threads.map(lambda n: writer.write(page(f"a/{n}", b"%d" % (n % 5))), range(40)))
        assert sorted(tickets) == list(range(1, 41))
        assert writer.last_ticket == 40
        assert writer.write(page("a/7", b"another")) == 40
    with blocking.open_sharded_writer(tmp_path / "pages", **OPTIONS) as writer:
        assert writer.has("http://a/7")
        assert writer.schema is not None
        assert writer.write_many(page(f"b/{n}", b"%d" % (n % 6)) for n in range(12)) == 12
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        found = list(dataset.examples())
        whole = blocking.resolve(dataset, found)
    bodies = {"a": 5, "b": 6}
    expected = [b"%d" % (int(each["url"][9:]) % bodies[each["url"][7]]) for each in found]
    assert [each["content"] for each in whole] == expected
    assert len([each for each in found if not pages.is_revisit(each)]) == 6


def test_invalid_seen_is_rejected_on_opening(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the writer has no schema"):
        with blocking.open_sharded_writer(tmp_path / "pages", seen="digest"):
            pass
    with blocking.open_sharded_writer(tmp_path / "pages", **{**OPTIONS, "key_feature": None}) as writer:
        with pytest.raises(ArgumentError, match="a page has no key"):
            writer.write(page("a/", b"1"))
        assert writer.write(page("a/", b"1"), key="http://a/") == 1
