"""Examples are read and made in C and in Python: a module that asks for ``implementation`` runs on both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from asyncrec._native import native
from asyncrec.example import _columns


@pytest.fixture(
    # Where no compiler was at hand, and the ids say so, there is one way only.
    params=[pytest.param(native, id="c" if native else "python"), pytest.param(None, id="python")],
    scope="module",
)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_columns, "native", request.param)
        yield
