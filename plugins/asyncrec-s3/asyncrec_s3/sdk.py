"""Replacements for parts of the SDK that would block the event loop, or work only on asyncio.

- Sessions that can also find and renew credentials on trio.
- A parser for dates in responses. The SDK's own parser guesses the format, which takes 0.15 ms per date, so it would
  block the loop for the 1,000 dates in a page of a listing.
- A reader for the SDK's models, which takes half the time and memory and lets other threads run.
- The SDK's HTTP session on asyncio, whose clients share their trusted authorities.
"""

from __future__ import annotations

import gzip
import json
import os
import ssl
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import anyio
import anyio.to_thread
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.httpsession import create_urllib3_context, get_cert_path
from botocore.loaders import JSONFileLoader
from botocore.utils import parse_timestamp

from asyncrec.errors import StoragePermissionError
from asyncrec.storage.http import parse_http_date


class Session(AioSession):  # type: ignore[misc]  # without types
    """An SDK session whose clients are created in one thread and entered in another.

    The SDK's own method also enters the client, which must be entered on the loop that will use it.
    """

    async def make_client(self, service: str, **options: Any) -> Any:
        return await self._create_client(service, **options)

    async def get_credentials(self) -> Any:
        """Find credentials.

        Raises:
            StoragePermissionError: the credentials cannot be sent.
        """
        found = await super().get_credentials()
        # Renewable credentials come from services rather than from a user's file, so they are not checked.
        if found is not None and not hasattr(found, "refresh_needed"):
            for what in ("access_key", "secret_key", "token"):
                if not (getattr(found, what) or "").isprintable():
                    raise StoragePermissionError(
                        f"opening a client for S3: the {what} that the SDK found ({found.method}) contains a "
                        "control character, perhaps a newline at the end of the file from which it was read; "
                        "remove it"
                    )
        return found


class SessionOnTrio(Session):
    """The same session for trio.

    The SDK finds and renews credentials with asyncio subprocesses and aiohttp requests, so this session runs both
    operations on a temporary asyncio loop in a worker thread.
    """

    async def get_credentials(self) -> Any:
        found = await anyio.to_thread.run_sync(anyio.run, super().get_credentials)
        # Static credentials need no renewal.
        return _Renewed(found) if hasattr(found, "refresh_needed") else found


class _Renewed:
    """Credentials that the SDK found and renews, with the methods that signing needs."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self._renewing: anyio.Lock | None = None  # created on trio's loop, when it is needed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    async def get_frozen_credentials(self) -> Any:
        """Return the current credentials. One caller renews them for all, and finishes even if cancelled."""
        if self._found.refresh_needed():
            self._renewing = self._renewing or anyio.Lock()
            async with self._renewing:
                if self._found.refresh_needed():
                    return await anyio.to_thread.run_sync(partial(anyio.run, self._found.get_frozen_credentials))
        return await self._found.get_frozen_credentials()


def parse_date(value: Any) -> datetime:
    """Parse a date, with its time zone.

    The formats of RFC 3339 (listings) and RFC 9110, 5.6.7 (headers) are parsed directly, all others by the SDK.

    Raises:
        ValueError: the value is not a date.
    """
    if isinstance(value, str):
        date = parse_http_date(value) if value[-4:] == " GMT" else _rfc_3339(value)
        if date is not None and date.tzinfo is not None:
            return date
    try:
        other: datetime = parse_timestamp(value)
    except (RuntimeError, OverflowError) as error:  # a year with twenty digits, or seconds with four hundred
        raise ValueError(f"{str(value)[:40]!r} is not a date") from error
    return other


def _rfc_3339(value: str) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


class Models(JSONFileLoader):  # type: ignore[misc]  # without types
    """A reader of model files for the SDK's loader.

    The SDK's own reader parses each file (1.2 MiB of endpoints, 1.4 MiB of S3) at once in C, and so holds the GIL and
    blocks the event loop for 10 to 30 ms. This reader calls a Python function for each object, which lets other threads
    run. It creates plain dicts, which take half the time and memory of the SDK's ordered dicts.
    """

    def load_file(self, file_path: str) -> Any:
        """Return the content of a file whose path has no extension, or `None` if the file does not exist."""
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            try:
                with opened(file_path + ending, "rb") as file:
                    text = file.read()
            except FileNotFoundError:
                continue
            return json.loads(text, object_pairs_hook=_object)
        return None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(members)


@lru_cache(8)
def _trusting(path: str, changed: tuple[int, ...]) -> ssl.SSLContext:
    """Return a shared context, which must not change, for the authorities in a file whose state is ``changed``."""
    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True
    context.load_verify_locations(path)
    return context


class SharingSession(AIOHTTPSession):  # type: ignore[misc]  # without types
    """The SDK's HTTP session on asyncio, whose clients share their trusted authorities.

    Otherwise, each client would parse the same 140 authorities, which takes 25 ms of processor time, as long as the
    rest of opening a client. On trio, each client does, because httpx sets the protocols of each connection on its
    context, which another thread may be using. A client with its own certificate or a proxy also has its own context,
    because the SDK modifies that context.
    """

    def __init__(self, *, verify: Any = True, proxies: Any = None, client_cert: Any = None, **rest: Any) -> None:
        super().__init__(verify=verify, proxies=proxies, client_cert=client_cert, **rest)
        self._authorities = get_cert_path(verify) if verify and not (proxies or client_cert) else None

    def _build_verify_context(self) -> ssl.SSLContext:
        if self._authorities is not None and os.path.isfile(self._authorities):
            file = os.stat(self._authorities)
            return _trusting(self._authorities, (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns))
        context: ssl.SSLContext = super()._build_verify_context()
        return context
