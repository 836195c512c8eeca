"""Credentials never appear in an error, log, repr or pickle, whatever fails or is echoed by a store."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import pytest
from aiohttp import web
from asyncrec_s3.plugin import open_s3
from s3_store import SMALLEST_PART

from asyncrec.errors import StorageError

pytestmark = pytest.mark.anyio

CANARIES = {
    "aws_access_key_id": "AKIACANARYKEYCANARY1",
    "aws_secret_access_key": "canarysecret/canary+secret/canarysecret1",
    "aws_session_token": "canarytoken+canarytoken/canarytoken+canarytoken==",
}
FAULTS = ["500", "403", "reset", "slowdown", "truncate", "echo"]


@pytest.mark.slow(but=["options-echo", "profile-echo"])
@pytest.mark.parametrize(
    ("source", "fault"), [*(("options", fault) for fault in FAULTS), ("environment", "echo"), ("profile", "echo")]
)
async def test_logs_and_errors_never_show_credentials(
    store: Any, proxy: Any, prefix: str, small_parts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any,
    caplog: pytest.LogCaptureFixture, source: str, fault: str,
) -> None:  # fmt: skip
    """This holds even if everything is logged and the store's error repeats the request's headers."""
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {"endpoint_url": proxy.endpoint, "chunk_size": SMALLEST_PART}
    if source == "options":
        options |= CANARIES
    elif source == "environment":
        for name, value in CANARIES.items():
            monkeypatch.setenv(name.upper(), value)
    else:
        lines = [f"{name} = {value}" for name, value in CANARIES.items()]
        (tmp_path / "credentials").write_text("\n".join(["[canary]", *lines]))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        options["profile"] = "canary"
    if fault == "echo":
        monkeypatch.setattr(proxy, "_answer", _echo)
    proxy.plan = lambda request: fault
    shown: list[str] = []
    async with open_s3(f"s3://{store.bucket}/{prefix}", **options) as storage:
        shown += [repr(storage), str(vars(storage)["shared"].options)]

        async def large(key: str) -> None:
            await storage.put(key, bytes(SMALLEST_PART))

        async def listing(key: str) -> None:
            async for info in storage.list_objects():
                shown.append(repr(info))

        async def put(key: str) -> None:
            await storage.put(key, b"x")

        for operation in (put, large, listing, storage.get, storage.head, storage.delete):
            try:
                await operation("x")
            except StorageError as error:
                shown += _all_of(error)
        assert len(shown) > 2 or fault == "truncate"
    shown += [record.getMessage() for record in caplog.records]
    shown += [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    shown += [caplog.text]
    assert any(
        request.headers["Authorization"].find(CANARIES["aws_access_key_id"]) > 0 for request in proxy.requests
    ) or (fault == "echo")
    for canary in CANARIES.values():
        assert not [text for text in shown if canary in text]


async def _echo(request: web.BaseRequest) -> web.Response:
    await request.read()
    token, key = request.headers["X-Amz-Security-Token"], request.headers["Authorization"].split("=")[1].split("/")[0]
    body = (
        f"<Error><Code>SignatureDoesNotMatch</Code><Message>{key} and {token}</Message>"
        f"<AWSAccessKeyId>{key}</AWSAccessKeyId><StringToSign>{token}</StringToSign></Error>"
    )
    return web.Response(status=403, text=body, content_type="application/xml")


def _all_of(error: BaseException) -> list[str]:
    """Return the entire contents of an error and of the errors chained to it."""
    texts = ["".join(traceback.format_exception(error)), repr(pickle.dumps(error))]
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            texts += [repr(one), str(one), repr(one.args), repr(vars(one))]
            todo += [one.__cause__, one.__context__]
    return texts
