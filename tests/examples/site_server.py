"""A web site on the loopback interface for the crawler's tests, served by threads of the test process."""

from __future__ import annotations

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

Answer = tuple[int, dict[str, str], bytes]


class SiteServer(ThreadingHTTPServer):
    """A web site made from a dict of paths, which records its requests and answers 304 if the client knows the ETag.

    Attributes:
        asked: the path and the User-Agent of every request.
        busy: set once ``busy_after`` requests have arrived.
    """

    daemon_threads = True

    def __init__(self, answers: dict[str, Answer], *, busy_after: int = 1) -> None:
        asked = self.asked = list[tuple[str, str | None]]()
        busy = self.busy = Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["User-Agent"]))
                if len(asked) >= busy_after:
                    busy.set()
                status, headers, body = answers.get(self.path, (404, {}, b""))
                if "ETag" in headers and self.headers["If-None-Match"] == headers["ETag"]:
                    status, body = 304, b""
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):  # the client stopped reading a long body
                    super().handle()

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def __enter__(self) -> SiteServer:
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()
