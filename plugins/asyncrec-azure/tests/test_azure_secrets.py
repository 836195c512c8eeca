"""Keys, tokens and signatures never appear in an error, log, repr or pickle, even if the store repeats them."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure_api import FakeAzure
from azure_opening import open_quick
from serving import Fault
from store_checks import everything

from asyncrec.errors import StorageError
from asyncrec.testing._checks import content, receive_all, send_all

pytestmark = pytest.mark.anyio

KEY = "YzRuNHJ5LXNlY3JldC1rZXk="
SIGNATURE = "c4n4ry/s1gn+ture="
QUOTED = "c4n4ry%2Fs1gn%2Bture%3D"
DATA = content(3 * 65_536 + 5)


@pytest.mark.slow(but=["sas_token"])
@pytest.mark.parametrize("by", ["account_key", "sas_token", "connection_string"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", 400, words=f"InvalidInput: {KEY} {SIGNATURE} {QUOTED}"),
        Fault("status", 403, words=f"AuthenticationFailed: The MAC signature {SIGNATURE} is not {KEY}, {QUOTED}"),
        Fault("status", 503, words=f"ServerBusy: sig={QUOTED} {KEY} {SIGNATURE}"),
        Fault("status", 404, words=f"BlobNotFound: {KEY} {SIGNATURE}?sig={QUOTED}"),
        Fault("reset"),
        Fault("truncate"),
        Fault("corrupt"),
        Fault("page"),
    ],
    ids=lambda fault: f"{fault.how}-{fault.status}",
)
async def test_secrets_never_appear_in_error_log_or_repr(
    azure: FakeAzure, fault: Fault, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    options: dict[str, Any] = {
        "account_key": {"account_key": KEY},
        "sas_token": {"sas_token": f"sv=2024-01-01&sig={QUOTED}"},
        "connection_string": {
            "connection_string": f"AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={azure.endpoint};"
        },
    }[by]
    azure.authorization = None
    azure.store("key", DATA)
    azure.plan = lambda kind, n: fault

    async def attempt(operation: Callable[[], Awaitable[object]]) -> None:
        try:
            await operation()
        except (StorageError, AssertionError) as error:
            texts.append(everything(error))

    async with open_quick(azure.endpoint, attempts=2, **options) as storage:

        async def write() -> None:
            async with storage.open_sink("new") as sink:
                texts.append(repr(sink))
                await send_all(sink, DATA)

        async def put() -> None:
            await storage.put("short", b"x", exclusive=True)

        async def read() -> None:
            async with storage.open_source("key") as source:
                texts.append(repr(source))
                await receive_all(source)

        async def listing() -> None:
            [info async for info in storage.list_objects()]

        for operation in (write, put, read, listing):
            await attempt(operation)
        texts.append(repr(storage))
    text = "\n".join([*texts, caplog.text, *(repr(vars(record)) for record in caplog.records)])
    assert len(texts) > 3
    for secret in (SIGNATURE, QUOTED) if by == "sas_token" else (KEY,):
        assert secret not in text


async def test_storage_cannot_be_pickled(azure: FakeAzure) -> None:
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises((TypeError, AttributeError)):
            pickle.Pickler(io.BytesIO()).dump(storage)
