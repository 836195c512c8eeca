"""Sessions of the SDK, and their credentials on trio.

The SDK finds and renews credentials by asyncio's own means: subprocesses, and requests by aiohttp to the services that
hand them out. So on trio both are done on an asyncio loop of a moment, in a worker thread.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from aiobotocore.session import AioSession

from asyncrec.errors import StoragePermissionError

__all__ = ["Session", "SessionOnTrio"]


class Session(AioSession):  # type: ignore[misc]  # without types
    """A session of the SDK whose clients are made in one place and entered in another.

    The SDK's own way to make one enters it, too, which must happen on the loop that will use it.
    """

    async def make_client(self, service: str, **options: Any) -> Any:
        return await self._create_client(service, **options)

    async def get_credentials(self) -> Any:
        """Find credentials.

        Raises:
            StoragePermissionError: they cannot be sent.
        """
        found = await super().get_credentials()
        # Those that are renewed come from services, and not from what a person wrote.
        if found is not None and not hasattr(found, "refresh_needed"):
            for what in ("access_key", "secret_key", "token"):
                if not (getattr(found, what) or "").isprintable():
                    raise StoragePermissionError(
                        f"opening a client for S3: the {what} that the SDK found ({found.method}) holds a control "
                        "character: does it end with the newline of a file?"
                    )
        return found


class SessionOnTrio(Session):
    """The same, on trio."""

    async def get_credentials(self) -> Any:
        found = await anyio.to_thread.run_sync(anyio.run, super().get_credentials)
        # Those that are what they are have nothing to renew.
        return _Renewed(found) if hasattr(found, "refresh_needed") else found


class _Renewed:
    """Credentials that the SDK has found and will renew, as much of them as signing asks for."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self._renewing: anyio.Lock | None = None  # of trio's, so made there: this is made on another loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    async def get_frozen_credentials(self) -> Any:
        """Give what to sign with now, renewed by one caller for all. Cancelled, a renewal is waited for."""
        if self._found.refresh_needed():
            self._renewing = self._renewing or anyio.Lock()
            async with self._renewing:
                if self._found.refresh_needed():
                    return await anyio.to_thread.run_sync(partial(anyio.run, self._found.get_frozen_credentials))
        return await self._found.get_frozen_credentials()
