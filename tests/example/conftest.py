"""A module that uses the fixture ``implementation`` runs with both the C and the Python code for examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from asyncrec._native import native
from asyncrec.example import _codec, _columns


@pytest.fixture(
    # Without a compiler, only the Python code is tested, and the ids of the tests say so.
    params=[pytest.param(native, id="c" if native else "python"), pytest.param(None, id="python")],
    scope="module",
)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in (_codec, _columns):
            monkeypatch.setattr(module, "native", request.param)
        yield
