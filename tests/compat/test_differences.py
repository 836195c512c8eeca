"""The pages under "Coming from" say what differs as the list has it that `make interop` holds against the originals."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

INTEROP = Path(__file__).parents[1] / "interop"


@pytest.mark.parametrize("system", sorted(file.stem for file in (INTEROP / "differences").glob("*.toml")))
def test_the_page_is_made_of_the_list(system: str) -> None:
    """``python tests/interop/beside.py`` makes it anew."""
    spec = importlib.util.spec_from_file_location("beside", INTEROP / "beside.py")
    assert spec is not None
    assert spec.loader is not None
    beside = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(beside)
    page = (beside.PAGES / f"{system}.md").read_text("utf-8")
    assert page == beside.page_of(system)


def test_the_tests_that_a_list_names_are_there() -> None:
    """Of TFRecorder, which has no package that could be run beside ours, tests hold what differs."""
    sources = Path(__file__).parent.glob("test_tfrecorder*.py")
    tests = {
        name for source in sources for name in re.findall(r"^def (test_\w+)", source.read_text("utf-8"), re.MULTILINE)
    }
    data = tomllib.loads((INTEROP / "differences" / "tfrecorder.toml").read_text("utf-8"))
    for difference in data["better"] + data["different"]:
        assert difference["tests"]
        assert set(difference["tests"]) <= tests
