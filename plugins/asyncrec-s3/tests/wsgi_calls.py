"""Calls a WSGI application as a server would, but without a connection and a thread for each request."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

Answer = tuple[int, list[tuple[str, str]], bytes]


class Application(Protocol):
    """A WSGI application (PEP 3333)."""

    def __call__(self, environ: dict[str, Any], start_response: Any, /) -> Iterable[bytes]: ...


def call(app: Application, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Return an application's response to a request: its status, headers and body.

    The target is the path with its query, as in the request line.
    """
    path, _, query = target.partition("?")
    environ: dict[str, Any] = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": target,
        "RAW_URI": target,
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    environ["CONTENT_LENGTH"] = str(len(body))
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        started.append((status, headers))

    blocks = app(environ, start_response)
    try:
        content = b"".join(blocks)
    finally:
        if (close := getattr(blocks, "close", None)) is not None:
            close()
    status, answer = started[-1]
    return int(status.split()[0]), answer, content
