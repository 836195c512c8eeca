"""Control headless Chromium, which must be on the PATH, through its DevTools protocol, to draw and check pages."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

# Elements that are wider than the page, except inside boxes that scroll.
OUTSIDE = """
JSON.stringify({
  width: document.documentElement.scrollWidth,
  height: document.documentElement.scrollHeight,
  outside: [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".table"))
    .map((each) => each.outerHTML.slice(0, 80)),
})
"""


class Browser:
    """A running Chromium, with one page at a time."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        while True:
            answer: dict[str, Any] = await self._socket.receive_json(timeout=60)
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    async def until(self, method: str) -> None:
        """Wait for an event."""
        while all(event.get("method") != method for event in self.events):
            self.events.append(await self._socket.receive_json(timeout=60))

    async def value(self, expression: str) -> Any:
        """Return the value of an expression, after waiting for it if it is a promise."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    @asynccontextmanager
    async def page(self, file: Path, *, width: int, height: int, dark: bool, scale: float = 1) -> AsyncIterator[Any]:
        """Open a page, and return its measurements, its console messages and its requests."""
        # No state is carried from one page to the next, such as the dark theme.
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (await self.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=file.as_uri())
        await self.until("Page.loadEventFired")
        measures = json.loads(await self.value(OUTSIDE))
        try:
            yield {**measures, "said": self._said(), "asked": self._asked(file)}
        finally:
            self._session = None
            await self.call("Target.closeTarget", targetId=target)
            await self.call("Target.disposeBrowserContext", browserContextId=context)

    async def picture(self, *, width: int, height: int) -> bytes:
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def _said(self) -> list[Any]:
        methods = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [event["params"] for event in self.events if event.get("method") in methods]

    def _asked(self, file: Path) -> list[str]:
        asked = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("data:") and url != file.as_uri()]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("Chromium is needed, and none is on the PATH")
    # Do not wait for files that Chromium writes while it exits.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
        # Chromium itself sends no requests; only pages do.
        options += ["--disable-background-networking", "--disable-component-update", "--disable-quic", "--disable-sync"]
        options += ["--no-first-run"]
        process = await asyncio.create_subprocess_exec(
            program, *options, f"--user-data-dir={profile}", "about:blank", stderr=subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            while not (found := re.search(rb"ws://\S+", await process.stderr.readline())):
                pass
            async with aiohttp.ClientSession() as session:
                async with session.ws_connect(found[0].decode(), max_msg_size=0) as socket:
                    yield Browser(socket)
        finally:
            process.terminate()
            await process.wait()
