"""The options of a server, validated before a storage is opened, and the conversion of keys to URLs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import redact
from asyncrec.storage.http import check_options

__all__ = ["Options"]

_OPTIONS: Mapping[str, Any] = {
    "ca_file": str | os.PathLike | None,
    "headers": Mapping | None,
    "proxy": str | None,
    "query": str | None,
}
# The characters that are not escaped in a URL, because a key may already be escaped or contain a query.
_SAFE = "/?&=;:@!$'()*+,~%-._"
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of one storage. Storages with equal options share their connections.

    Attributes:
        root: the scheme, host and port of the URL.
        headers: the headers, such as credentials, to send with every request to this server, but not to other servers
            to which it redirects.
        query: the query to append to every URL, such as a shared-access signature.
        ca_file: a file of trusted certificate authorities; `None` for those of the machine.
        proxy: the URL of a proxy, optionally with credentials; `None` for the proxy in the environment.
    """

    root: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    query: str = field(default="", repr=False)
    ca_file: str | None = None
    proxy: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, **options: Any) -> tuple[Options, str]:
        """Return the options for a URL, and the URL's prefix (``""`` for the server itself).

        Raises:
            ValueError: the URL or an option is invalid. The message does not contain credentials.
            TypeError: an option is unknown or has the wrong type.
        """
        check_options("http", options, _OPTIONS)
        shown = redact(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ArgumentValueError(f"{shown}: the URL must have the form https://host/folder") from None
        if parts.username is not None:
            raise ArgumentValueError(f"{shown}: a URL must not contain credentials; pass them in the headers= option")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ArgumentValueError(f"{shown}: the URL must have the form https://host/folder")
        if parts.query or parts.fragment:
            raise ArgumentValueError(f"{shown}: the URL of a folder cannot have a query; pass it as the option query")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(
            root=f"{parts.scheme}://{host}" + (f":{port}" if port is not None else ""),
            headers=_headers(options.get("headers")),
            query=(options.get("query") or "").lstrip("?"),
            ca_file=None if options.get("ca_file") is None else os.fspath(options["ca_file"]),
            proxy=options.get("proxy"),
        ), parts.path.strip("/")

    def address(self, key: str) -> str:
        """Return the URL for a key, escaped if necessary, including the query."""
        path = _BARE_PERCENT.sub("%25", quote(key, safe=_SAFE))
        if not self.query:
            return f"{self.root}/{path}"
        return f"{self.root}/{path}{'&' if '?' in path else '?'}{self.query}"


def _headers(given: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    found = tuple(sorted((given or {}).items()))
    for name, value in found:
        if not isinstance(name, str) or not isinstance(value, str) or not re.fullmatch(r"[!-9;-~]+", name):
            raise ArgumentValueError("headers must be a dict of names to values, each a str")  # values are not shown
        if not value.isprintable() or not value.isascii():
            raise ArgumentValueError(f"the header {name} contains characters that cannot be sent")
        if name.lower() in ("accept-encoding", "host", "if-range", "range"):
            raise ArgumentValueError(f"the header {name} cannot be set by the caller")
    return found
