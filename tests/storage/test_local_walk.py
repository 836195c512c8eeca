"""Local files are listed in the same order as the keys of a flat store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.storage._local.walk import walk

# Characters that sort before and after the slash, and one that sorts differently in UTF-16 and UTF-8.
SEGMENTS = st.text("a-.0\uff5e\U0001f600", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
KEYS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)


def make(folder: Path, keys: list[str]) -> list[str]:
    """Create files for the keys and return those that can coexist in a file system."""
    made = []
    for key in keys:
        path = folder / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(exist_ok=False)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
        made.append(key)
    return made


@settings(max_examples=80, deadline=None)
@given(
    st.lists(KEYS, max_size=12, unique=True), KEYS | st.just(""), st.just("") | KEYS | SEGMENTS.map(lambda s: s + "/")
)
def test_folder_walk_lists_files_like_flat_store(keys: list[str], start_after: str, prefix: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = make(Path(name), keys)
        for tried in (prefix, prefix[:-1], *made[:1]):
            expected = sorted(
                (key for key in made if key.startswith(tried) and key.encode() > start_after.encode()), key=str.encode
            )
            assert [key for key, _ in walk(name, tried, start_after, partial=False)] == expected
