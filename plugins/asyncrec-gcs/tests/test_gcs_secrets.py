"""Tokens and session URLs are never shown, and are sent only to the endpoint."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from asyncrec_gcs.options import Options
from fake_gcs import UNIT, FakeGcs, Fault
from opening import CANARY, open_quick
from store_checks import everything

from asyncrec.errors import StorageError
from asyncrec.testing._checks import content, receive_all, send_all

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_credentials_of_this_machine")]
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])

DATA = content(3 * UNIT + 5)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", 401, words=f"Invalid Credentials: Bearer {CANARY}, token={CANARY}"),
        Fault("status", 403, words=f"denied {CANARY} upload_id=SESSION"),
        Fault("status", 503, words=f"{CANARY} upload_id=SESSION"),
        Fault("status", 404, words=f"{CANARY}"),
        Fault("status", 412, words=f"{CANARY}"),
        Fault("reset"),
        Fault("truncate"),
        Fault("expire"),
        Fault("corrupt"),
        Fault("page"),
    ],
    ids=lambda fault: f"{fault.how}-{fault.status}",
)
async def test_secrets_never_appear_in_error_log_repr_or_pickle(
    gcs: FakeGcs, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """No failure reveals a token or a session URL, even if the store's response repeats it."""
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    sessions: set[str] = set()

    async def attempt(operation: Callable[[], object]) -> None:
        try:
            await operation()  # type: ignore[misc]  # each is a coroutine function
        except (StorageError, AssertionError) as error:
            texts.append(everything(error))

    for first in range(1, 9):
        gcs.reset()
        gcs.token = CANARY
        gcs.put("key", DATA)

        def plan(kind: str, n: int, first: int = first) -> Fault | None:
            sessions.update(gcs.sessions)
            return fault if n >= first and kind != "abort" else None

        gcs.plan = plan
        async with open_quick(token=CANARY, endpoint=gcs.url, attempts=2) as storage:

            async def write() -> None:
                async with storage.open_sink("new") as sink:  # awaited within the loop
                    texts.append(repr(sink))
                    await send_all(sink, DATA)

            async def read() -> None:
                async with storage.open_source("key") as source:  # awaited within the loop
                    texts.append(repr(source))
                    await receive_all(source)

            async def listing() -> None:
                [info async for info in storage.list_objects()]  # awaited within the loop

            for operation in (write, read, listing):
                await attempt(operation)
            texts.append(repr(storage))
    text = "\n".join([*texts, caplog.text, *(repr(vars(record)) for record in caplog.records)])
    assert texts
    assert CANARY not in text
    assert not [upload for upload in sessions if upload in text]
    assert "upload_id=SESSION" not in text


@asyncio_only
async def test_storage_cannot_be_pickled(gcs: FakeGcs) -> None:
    async with open_quick(token=CANARY) as storage:
        with pytest.raises(TypeError, match="open another") as raised:
            pickle.Pickler(io.BytesIO()).dump(storage)
    assert CANARY not in everything(raised.value)
    options, _ = Options.of("gs://bucket", token=CANARY)
    assert CANARY not in repr(options)


async def test_token_is_sent_to_endpoint_only(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store returns the URL of an upload session, which may be on a different host."""
    with FakeGcs().serving() as other:
        other.token = None
        gcs.token = CANARY
        opening = gcs._open

        async def elsewhere(*args: Any) -> Any:
            answer = await opening(*args)
            other.sessions.update(gcs.sessions)
            answer.headers["Location"] = answer.headers["Location"].replace(gcs.url, other.url)
            return answer

        monkeypatch.setattr(gcs, "_open", elsewhere)  # as a store may do
        async with open_quick(token=CANARY, endpoint=gcs.url, attempts=2) as storage:
            with suppress(StorageError, AssertionError):
                await storage.put("key", DATA)
        assert gcs.seen[0]["Authorization"] == f"Bearer {CANARY}"
        assert other.seen
        assert not any("Authorization" in headers for headers in other.seen)
