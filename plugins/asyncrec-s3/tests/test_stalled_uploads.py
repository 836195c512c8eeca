"""A request fails only if its body stops moving, however large the body is."""

from __future__ import annotations

import socket
from typing import Any

import anyio
import pytest
from asyncrec_s3.body import body_of
from asyncrec_s3.bucket import Bucket
from asyncrec_s3.client import Known
from asyncrec_s3.options import Options
from asyncrec_s3.plugin import open_s3
from asyncrec_s3.storage import S3Storage

from asyncrec.errors import TransientStorageError

pytestmark = pytest.mark.anyio

PATIENCE = 12.0
OPTIONS = Options(bucket="bucket", connect_timeout=2.0, read_timeout=10.0)
SIZE = 8 << 20
ANSWER = {"ETag": '"abc"'}


class Client:
    """Takes ``seconds`` to receive each block of a body, and responds ``late`` seconds after ``most`` blocks."""

    def __init__(self, *, seconds: float, most: int | None = None, late: float = 0.0) -> None:
        self._seconds, self._most, self._late = seconds, most, late
        self.taken = 0

    async def put_object(self, **params: Any) -> dict[str, Any]:
        for block in params["Body"].blocks():
            if self.taken == self._most:
                await anyio.sleep_forever()
            await anyio.sleep(self._seconds)
            self.taken += 1
            assert len(block)
        await anyio.sleep(self._late)
        return ANSWER


class Connection:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.known = Known(is_aws=False)


async def put(client: Client) -> dict[str, Any]:
    bucket = Bucket(Connection(client), OPTIONS)  # type: ignore[arg-type]  # a stand-in
    body = await body_of(bytes(SIZE), hashed=False, limiter=anyio.CapacityLimiter(1))
    return await bucket.call("put_object", "put x", Body=body)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("most", [0, 1, 5])
async def test_stalled_upload_fails_after_its_patience(most: int) -> None:
    """The patience is counted from the last block that was received."""
    began = anyio.current_time()
    with pytest.raises(TransientStorageError, match="put x: the request made no progress for 12 s"):
        await put(Client(seconds=1.0, most=most))
    assert anyio.current_time() - began == pytest.approx(most + PATIENCE)


@pytest.mark.virtual_clock
async def test_slow_upload_with_progress_does_not_fail() -> None:
    client = Client(seconds=0.9 * PATIENCE, late=0.9 * PATIENCE)
    assert await put(client) == ANSWER
    assert client.taken > 10


async def test_upload_to_server_that_reads_nothing_fails() -> None:
    """The kernel completes the connection, and accepts some megabytes of the body."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        options: dict[str, Any] = {"read_timeout": 1.0, "connect_timeout": 1.0}
        async with open_s3(
            "s3://bucket/x", endpoint_url=f"http://127.0.0.1:{deaf.getsockname()[1]}", **options
        ) as storage:
            assert isinstance(storage, S3Storage)
            body = await body_of(bytes(16 << 20), hashed=False, limiter=anyio.CapacityLimiter(1))
            with anyio.fail_after(30), pytest.raises(TransientStorageError, match="put x: "):
                await storage.shared.bucket.call("put_object", "put x", Key="x", Body=body)
