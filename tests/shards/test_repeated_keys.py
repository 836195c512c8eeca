"""Without ``on_duplicate``, both records of a repeated key are stored, and a warning is logged once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import FixedLen, Schema

pytestmark = pytest.mark.anyio

LONG = "https://example.org/" + "x" * 2000  # too long to be hashed in a batch


@pytest.mark.parametrize("keys", [["a", "b", "a", "b"], [LONG, "b", LONG]], ids=["short", "long"])
async def test_first_repeated_key_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: list[str]
) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        for key in keys:
            await writer.write(b"record", key=key)
            await writer.flush()  # one batch per key
    assert [record.levelname for record in caplog.records if "was written twice" in record.message] == ["WARNING"]
    (message,) = [message for message in caplog.messages if "was written twice" in message]
    assert f"{tmp_path / 'pages'}: " in message
    assert "on_duplicate='skip'" in message
    if keys[0] == "a":
        assert "the key 'a' was written twice" in message
    assert (await asyncrec.read_manifest(tmp_path / "pages")).records == len(keys)


async def test_repeated_key_in_feature_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema({"id": FixedLen((), "str"), "n": FixedLen((), "int64")})
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=schema, key_feature="id") as writer:
        await writer.write_many([schema.encode({"id": "a", "n": n}) for n in range(3)])
    assert sum("the key 'a' was written twice" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("options", [{"on_duplicate": "write"}, {"on_duplicate": "skip"}, {}])
async def test_repeated_keys_raise_no_warning_under_explicit_policy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", **options) as writer:
        for _ in range(3):
            await writer.write(b"record", key="a" if options else None)
        await writer.write(b"record", key="b")
        await writer.write(b"record")
    assert not [message for message in caplog.messages if "twice" in message]


async def test_repeated_key_warning_watches_only_first_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        for number in range(70_000):
            await writer.write(b"", key=b"%d" % number)
        for _ in range(2):
            await writer.write(b"", key="late")
    assert not [message for message in caplog.messages if "twice" in message]
