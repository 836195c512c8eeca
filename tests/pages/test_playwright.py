"""The documented Playwright recipe, with a real browser; `make frameworks` runs it.

It needs Playwright's Python package and the distribution's Chromium, which `make test` does not install.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from asyncrec import blocking, pages

pytest.importorskip("playwright", reason="Playwright is not installed: `make frameworks` installs it")
if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium: `apt-get install chromium` brings it", allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs/how-to/crawl.md"
# Data that is not text.
GIF = b"GIF89a" + bytes(range(256))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, kind, body = {
            "/page": (200, "text/html; charset=utf-8", "<p>é</p><script>document.title = 'made'</script>".encode()),
            "/away": (302, "text/plain", b"away"),
            "/image": (200, "image/gif", GIF),
            "/gone": (404, "text/html", b"<p>gone</p>"),
        }.get(self.path, (404, "text/plain", b""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Two", "1")
        self.send_header("X-Two", "2")
        if status == 302:
            self.send_header("Location", "/page")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def root() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def recipe() -> str:
    (code,) = re.findall(r"^```python\n((?:(?!```).)*async_playwright.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    return str(code)


def test_playwright_recipe_stores_response_body(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = recipe()
    monkeypatch.chdir(tmp_path)
    urls = [f"{root}/{name}" for name in ("page", "away", "image", "gone")]
    for _ in range(2):  # the second run finds all pages in the data set
        exec(compile(code, str(PAGE), "exec"), {"urls": urls})
    with blocking.open_dataset("crawl/pages-playwright") as dataset:
        assert len(dataset) == len(urls)
        page, away, image, gone = (pages.PAGE.decode(dataset.get_by_key(url)) for url in urls)

    assert (page["status"], page["reason"], page["method"], page["final_url"]) == (200, "OK", "GET", "")
    assert page["content"].startswith("<p>é</p>".encode())
    assert (page["content_type"].lower(), page["charset"]) == ("text/html; charset=utf-8", "utf-8")
    assert [line for line in page["headers"].split(b"\n") if line.startswith(b"X-Two")] == [b"X-Two: 1", b"X-Two: 2"]
    assert b"user-agent: " in page["request_headers"].lower()
    assert (page["ip"], page["digest"]) == ("127.0.0.1", pages.payload_digest(page["content"]))
    assert page["elapsed"] > 0

    assert (away["url"], away["final_url"], away["status"]) == (f"{root}/away", f"{root}/page", 200)
    assert away["content"] == page["content"]

    assert (image["content"], image["content_type"]) == (GIF, "image/gif")
    assert (gone["status"], gone["reason"], gone["content"]) == (404, "Not Found", b"<p>gone</p>")
