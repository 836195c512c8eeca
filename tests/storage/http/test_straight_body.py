"""Reading an aiohttp response's body without aiohttp's parser: the bytes, and the state of the connection after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

import aiohttp
import anyio
import pytest
from certificates import Certificate

from asyncrec.storage.http import StraightBody
from asyncrec.testing._checks import content

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

BLOCK = 512 << 10
SIZES = [1, 10_000, BLOCK - 1, BLOCK, BLOCK + 1, (3 << 20) + 7]


class Server:
    """A server that responds to ``GET /N`` with N bytes and keeps the connection open."""

    def __init__(self) -> None:
        self.connections = 0
        self.sent = 0
        self.breaks_at: int | None = None  # offset in a body at which the connection is closed
        self.extra = b""  # sent after a body, beyond its stated length
        self.at_once = False  # send the headers and the body together
        self.ends = False  # close the connection after a body without announcing it
        self.headers = ""
        self.ended = asyncio.Semaphore(0)
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.split()[1][1:])
                sent = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{self.headers}\r\n".encode()
                body = content(size)[: self.breaks_at]
                if self.at_once:
                    writer.write(sent + body + self.extra)
                    await writer.drain()
                else:
                    writer.write(sent)
                    await writer.drain()
                    for begin in range(0, len(body), 100_000):
                        last = begin + 100_000 >= size
                        writer.write(body[begin : begin + 100_000] + (self.extra if last else b""))
                        await writer.drain()
                        self.sent += 100_000
                if len(body) < size or self.ends:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.ended.release()


Serving = Callable[[], AbstractAsyncContextManager[tuple[Server, aiohttp.ClientSession]]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.made(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(params=["http", "https"])
def serving(request: pytest.FixtureRequest, certificate: Certificate) -> Serving:
    """Return a function that runs a server and a client session for it."""
    tls = certificate if request.param == "https" else None

    @asynccontextmanager
    async def run() -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
        server = Server()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls and tls.server)
        server.url = f"{request.param}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        connector = aiohttp.TCPConnector(ssl=tls.client if tls else True)
        async with listening, aiohttp.ClientSession(connector=connector) as session:
            yield server, session

    return run


async def begun(server: Server, session: aiohttp.ClientSession, size: int) -> tuple[aiohttp.ClientResponse, Callable]:
    """Return a response and a function that reads it: directly, or with aiohttp if its body came with its headers."""
    response = await session.get(f"{server.url}/{size}")
    body = StraightBody.of(response, size)
    return response, response.content.readany if body is None else body.read


async def rest(read: Callable) -> bytes:
    blocks = []
    with anyio.fail_after(20):
        while block := await read():
            assert len(block) <= BLOCK
            blocks.append(block)
    return b"".join(blocks)


async def test_bodies_are_read_whole_over_one_connection(serving: Serving) -> None:
    async with serving() as (server, session):
        for size in SIZES * 3:
            _, read = await begun(server, session, size)
            assert await rest(read) == content(size)
        assert server.connections == 1


async def test_many_concurrent_bodies_are_read_whole(serving: Serving) -> None:
    async with serving() as (server, session), anyio.create_task_group() as tasks:

        async def one(size: int) -> None:
            _, read = await begun(server, session, size)
            assert await rest(read) == content(size)

        for size in SIZES * 4:
            tasks.start_soon(one, size)


@pytest.mark.parametrize("breaks_at", [0, 10, BLOCK, BLOCK + 10])
async def test_truncated_body_yields_received_bytes_then_error(serving: Serving, breaks_at: int) -> None:
    async with serving() as (server, session):
        server.breaks_at = breaks_at
        response, read = await begun(server, session, 2 << 20)
        came = b""
        with pytest.raises((OSError, aiohttp.ClientPayloadError)), anyio.fail_after(20):
            while True:
                came += await read()
        assert came == content(2 << 20)[:breaks_at]
        response.close()
        server.breaks_at = None
        _, read = await begun(server, session, 1000)
        assert await rest(read) == content(1000)


async def test_abandoned_body_closes_its_connection(serving: Serving) -> None:
    async with serving() as (server, session):
        response = await session.get(f"{server.url}/{8 << 20}")
        body = StraightBody.of(response, 8 << 20)
        assert body is not None
        await body.read()
        body.leave()
        response.close()
        _, read = await begun(server, session, 3 << 20)
        assert await rest(read) == content(3 << 20)
        assert server.connections == 2


async def test_cancelled_read_loses_no_bytes(serving: Serving) -> None:
    async with serving() as (server, session):
        response = await session.get(f"{server.url}/{3 << 20}")
        body = StraightBody.of(response, 3 << 20)
        assert body is not None
        blocks = []
        while True:
            with anyio.move_on_after(0) as scope:
                block = await body.read()
                if not block:
                    break
                blocks.append(block)
            if scope.cancelled_caught:
                await anyio.lowlevel.checkpoint()
        assert b"".join(blocks) == content(3 << 20)


async def test_sender_waits_for_paused_reader(serving: Serving) -> None:
    size = 64 << 20
    async with serving() as (server, session):
        response = await session.get(f"{server.url}/{size}")
        body = StraightBody.of(response, size)
        assert body is not None
        for _ in range(5000):
            await anyio.lowlevel.checkpoint()
        assert server.sent < size / 2
        assert await rest(body.read) == content(size)


async def test_body_on_foreign_event_loop_stays_with_aiohttp() -> None:
    """Other transports, such as uvloop's, may be unable to switch protocols in the middle of a body."""

    class Elsewhere:
        transport = object()

    class Answer:
        connection = Elsewhere()
        headers: ClassVar = {"Content-Length": "5"}

    assert StraightBody.of(Answer(), 5) is None


async def test_body_of_unexpected_length_is_left_to_aiohttp(serving: Serving) -> None:
    async with serving() as (server, session), session.get(f"{server.url}/{1 << 20}") as response:
        assert StraightBody.of(response, 1000) is None
        assert await response.read() == content(1 << 20)


@pytest.mark.parametrize("size", [1, 10_000, BLOCK + 1, 700_000, (3 << 20) + 7])
async def test_body_arriving_with_headers_is_read_whole(serving: Serving, size: int) -> None:
    async with serving() as (server, session):
        server.at_once = True
        for _ in range(3):
            _, read = await begun(server, session, size)
            assert await rest(read) == content(size)
        assert server.connections == 1


@pytest.mark.parametrize("headers", ["", "Connection: close\r\n"])
@pytest.mark.parametrize("size", [700_000, 1 << 20, (1 << 20) + 300_000, (2 << 20) - 1, 2 << 20, (4 << 20) + 99])
async def test_connection_ending_with_body_loses_no_bytes(serving: Serving, size: int, headers: str) -> None:
    async with serving() as (server, session):
        server.ends, server.headers = True, headers
        _, read = await begun(server, session, size)
        for _ in range(200):  # the reader pauses, so that all buffers fill up
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0.05):
            await server.ended.acquire()
        assert await rest(read) == content(size)
        server.ends, server.headers = False, ""
        _, read = await begun(server, session, 1000)
        assert await rest(read) == content(1000)


@pytest.mark.parametrize("extra", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", bytes(1_000_000)])
@pytest.mark.parametrize("size", [2 * BLOCK, (3 << 20) + 7])
async def test_bytes_after_body_do_not_become_next_response(serving: Serving, size: int, extra: bytes) -> None:
    async with serving() as (server, session):
        server.extra = extra
        _, read = await begun(server, session, size)
        assert await rest(read) == content(size)
        server.extra = b""
        _, read = await begun(server, session, 4)
        assert await rest(read) == content(4)
        assert server.connections == 2


async def test_abandoned_body_closes_connection_at_server(serving: Serving) -> None:
    async with serving() as (server, session):
        response = await session.get(f"{server.url}/{64 << 20}")
        body = StraightBody.of(response, 64 << 20)
        assert body is not None
        await body.read()
        for _ in range(100):  # so that the server waits for the reader
            await anyio.lowlevel.checkpoint()
        body.leave()
        response.close()
        with anyio.fail_after(5):
            await server.ended.acquire()
