"""The demo reads what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncrec import tools
from asyncrec.errors import ObjectExistsError

pytestmark = pytest.mark.anyio


async def test_it_writes_verifies_and_reads(tmp_path: Path) -> None:
    report = await tools.demo(tmp_path, records=500)
    assert [step.records for step in report.steps] == [500, 500, 100, 500]
    assert (await tools.verify(report.path)).records == 500
    with pytest.raises(ObjectExistsError):
        await tools.demo(tmp_path, records=500)


def test_every_tool_is_there_by_name() -> None:
    assert all(callable(getattr(tools, name)) for name in tools.__all__)
    import asyncrec.tools.report as module

    assert callable(tools.report)  # the function, though its module is named as it is
    assert callable(module)
    with pytest.raises(AttributeError, match="nobody"):
        tools.nobody  # noqa: B018  # the access is what is tested
