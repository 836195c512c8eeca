"""The blocking API finds pages of a data set just as the asynchronous one does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from asyncrec import blocking, pages

URL = "http://a/"


def test_blocking_page_functions_find_conditions_and_bodies(tmp_path: Path) -> None:
    one = pages.page(URL, b"<p>", status=200, headers={"ETag": '"1"'}, date="2026-11-22T00:00:00Z")
    two = pages.page(URL, status=304, date="2026-11-23T00:00:00Z", before=one)
    for page in (one, two):
        with blocking.open_sharded_writer(tmp_path / "pages", schema=pages.PAGE, on_duplicate="write") as writer:
            writer.write(page, key=URL)
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        known = blocking.conditions(dataset, URL)
        assert known == {"If-None-Match": '"1"'}
        assert known.page is not None
        assert (known.page["date"], known.page["type"]) == ("2026-11-23T00:00:00Z", "revisit")
        assert blocking.resolve(dataset, known.page)["content"] == b"<p>"
        assert [page["content"] for page in blocking.resolve(dataset, list(dataset.examples()))] == [b"<p>", b"<p>"]
        with pytest.raises(KeyError, match="has no body"):
            blocking.resolve(dataset, {**two, "digest": "sha1:OTHER", "refers_to_date": "2026-11-21T00:00:00Z"})
        with pytest.raises(TypeError, match=r"one from asyncrec\.blocking\.open_dataset"):
            blocking.resolve("crawl/pages", one)  # type: ignore[call-overload]  # deliberately wrong
        with pytest.raises(TypeError, match=r"one from asyncrec\.blocking\.open_dataset"):
            blocking.conditions(tmp_path, URL)  # type: ignore[arg-type]  # as above
    assert blocking.conditions(None, URL) == {}


@pytest.mark.parametrize("name", ["conditions", "resolve"])
def test_blocking_page_functions_match_async_signatures_and_docstrings(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(pages, name)
    assert not inspect.iscoroutinefunction(ours)
    assert ours.__doc__ == theirs.__doc__
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
