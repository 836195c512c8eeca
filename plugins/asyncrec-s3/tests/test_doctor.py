"""`asyncrec doctor` on stores that honour exclusive creation always, only for puts, or never."""

from __future__ import annotations

from typing import Any

import pytest

from asyncrec import tools

pytestmark = pytest.mark.anyio

SMALL, PARTS = "exclusive creation, small object", "exclusive creation, several parts"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ignores", "ok", "small", "parts"),
    [
        ([], True, True, True),
        (["CompleteMultipartUpload"], True, True, None),
        (["CompleteMultipartUpload", "PutObject"], False, False, False),
    ],
    ids=["all", "puts", "nothing"],
)
async def test_doctor_rates_small_objects_and_parts_separately(
    store: Any, proxy: Any, prefix: str, ignores: list[str], ok: bool, small: bool, parts: bool | None
) -> None:
    """This does not depend on who wins the races, and leaves nothing behind."""
    proxy.ignores = frozenset(ignores)
    options = {"endpoint_url": proxy.endpoint, "chunk_size": 5 << 20}
    report = await tools.doctor(f"s3://{store.bucket}/{prefix}", storage_options=options)
    marks = {check.name: check for check in report.checks}
    assert (report.ok, marks[SMALL].ok, marks[PARTS].ok) == (ok, small, parts), report.to_json()
    if parts is None:
        assert "not supported for objects of" in marks[PARTS].detail
    if small is False:
        assert "ignores If-None-Match" in marks[SMALL].detail
    assert store.keys(prefix) == []
    assert store.unfinished(prefix) == []
