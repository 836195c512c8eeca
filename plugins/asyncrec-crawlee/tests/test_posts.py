"""Crawls that send forms: the key of a page contains the body of its request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from asyncrec_crawlee import AsyncrecStorageClient
from crawlee import Request
from crawlee.configuration import Configuration
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.storage_clients import MemoryStorageClient

import asyncrec
from asyncrec import pages

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # Crawlee's

FORMS = [b"q=red", b"q=green", b"q=blue"]


class Handler(BaseHTTPRequestHandler):
    """Responds to a form with its content."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(form)))
        self.end_headers()
        self.wfile.write(form)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/search"
        server.shutdown()
        thread.join()


async def crawl(folder: Path, address: str) -> None:
    configuration = Configuration(storage_dir=str(folder / "crawlee"), purge_on_start=False)
    others = MemoryStorageClient()
    async with AsyncrecStorageClient(folder, schemas={"default": pages.PAGE}, others=others) as storage:
        crawler = HttpCrawler(storage_client=storage, configuration=configuration)

        @crawler.router.default_handler
        async def handle(context: HttpCrawlingContext) -> None:
            await context.push_data(await pages.from_crawlee(context))

        await crawler.run(
            [Request.from_url(address, method="POST", payload=form, use_extended_unique_key=True) for form in FORMS]
        )


async def test_posts_of_different_forms_are_stored_once_each(tmp_path: Path, address: str) -> None:
    for _ in range(2):
        await crawl(tmp_path, address)
    async with asyncrec.open_dataset(tmp_path / "default") as dataset:
        found = [page["content"] async for page in dataset.examples()]
        assert sorted(found) == sorted(FORMS)
        for form in FORMS:
            record = await dataset.get_by_key(pages.page_key({"url": address, "method": "POST"}, form))
            assert pages.PAGE.decode(record)["content"] == form
