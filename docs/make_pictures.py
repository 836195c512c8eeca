"""The pictures of these pages, from real runs: ``python docs/make_pictures.py [--check PAGE.html ...]``.

``pictures/demo.png`` is the screen of ``make demo``, and ``pictures/report.png`` what ``asyncrec report`` makes of the
data set it leaves. Both are drawn by headless Chromium, which must be on the PATH; it is spoken to by its own protocol,
with aiohttp. ``make pictures`` does it.

Every page that is drawn is checked on the way, at 390 and 1,440 pixels, in light and in dark: no message on the
console, no request but for the page itself, nothing that sticks out on the right. ``--check`` does that with any pages,
and draws nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import aiohttp
from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 150 << 10
COLUMNS = 98

THEME = TerminalTheme(
    (22, 24, 29),
    (214, 218, 226),
    # black, red, green, yellow, blue, magenta, cyan, white
    [
        *((40, 44, 52), (224, 108, 117), (126, 200, 120), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (171, 178, 191)),
    ],
)

# What sticks out, and is not in a box that scrolls by itself.
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
    """Chromium, and one of its pages at a time."""

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
        return (await self.call("Runtime.evaluate", expression=expression))["result"].get("value")

    @asynccontextmanager
    async def page(self, file: Path, *, width: int, height: int, dark: bool, scale: float = 1) -> AsyncIterator[Any]:
        """Open a page, check it, and give its measures."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
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
        self._check(file, width, measures)
        try:
            yield measures
        finally:
            self._session = None
            await self.call("Target.closeTarget", targetId=target)

    async def picture(self, *, width: int, height: int) -> bytes:
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def _check(self, file: Path, width: int, measures: dict[str, Any]) -> None:
        methods = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        said = [event["params"] for event in self.events if event.get("method") in methods]
        asked = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        asked = [url for url in asked if not url.startswith("data:") and url != file.as_uri()]
        if said or asked or measures["outside"] or measures["width"] > width:
            sys.exit(f"{file} at {width} pixels: console {said}, requests {asked}, too wide {measures}")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("make_pictures: Chromium is needed, and none is on the PATH")
    # What it still writes while it ends is not waited for.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
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


async def check(browser: Browser, pages: list[Path]) -> None:
    for file in pages:
        for width in (390, 1440):
            for dark in (False, True):
                async with browser.page(file, width=width, height=900, dark=dark) as measures:
                    scheme = "dark" if dark else "light"
                    print(f"{file.name}: right at {width} pixels, {scheme}, {measures['height']} high")


def terminal(command: list[str], folder: Path) -> str:
    """What a command writes to a terminal of `COLUMNS` columns, with its colours."""
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, cwd=folder, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    written = b""
    try:
        while block := os.read(leader, 1 << 16):
            written += block
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    if process.wait():
        sys.exit(f"make_pictures: {command} failed:\n{written.decode()}")
    return written.decode().replace("\r\n", "\n")


def screen(command: str, written: str) -> str:
    """The screen as a page: a prompt, and what stands when all is done; a progress bar that is gone is gone."""
    last = re.split(r"\x1b\[2K|\r", written)[-1]
    last = re.sub(r"\x1b\[\?25[hl]|\x1b\[1A", "", last)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text.from_ansi(last.strip("\n")))
    body = console.export_html(theme=THEME, inline_styles=True, code_format="<pre>{code}</pre>")
    return f"""<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #16181d; color: #d6dae2; width: max-content; }}
pre {{ margin: 0; padding: 22px 28px 24px; font: 14px/1.32 "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
</style>{body}"""


def keep(name: str, png: bytes) -> None:
    """In 256 colours, which nobody sees and which are a third of the bytes."""
    PICTURES.mkdir(exist_ok=True)
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(PICTURES / name, optimize=True)
    size = (PICTURES / name).stat().st_size
    print(f"{PICTURES / name}: {size >> 10} KiB")
    if size > MOST_BYTES:
        sys.exit(f"{name} has more than {MOST_BYTES >> 10} KiB")


async def draw(browser: Browser, folder: Path) -> None:
    crawl = [sys.executable, str(ROOT / "examples" / "crawl_site.py")]
    page = folder / "screen.html"
    page.write_text(screen("make demo", terminal(crawl, folder)), "utf-8")
    async with browser.page(page, width=1440, height=900, dark=False, scale=1) as measures:
        width = int(await browser.value("Math.ceil(document.body.getBoundingClientRect().width)"))
        keep("demo.png", await browser.picture(width=width, height=measures["height"]))

    report = [sys.executable, "-m", "asyncrec.cli", "report", "demo-data/pages", "-o", "report.html"]
    process = await asyncio.create_subprocess_exec(*report, cwd=folder)
    if await process.wait():
        sys.exit("make_pictures: the report failed")
    await check(browser, [folder / "report.html"])
    async with browser.page(folder / "report.html", width=1200, height=900, dark=False):
        keep("report.png", await browser.picture(width=1200, height=1250))


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", nargs="+", type=Path, metavar="PAGE.html")
    options = parser.parse_args()
    async with chromium() as browser:
        if options.check:
            await check(browser, [file.resolve() for file in options.check])
            return
        with tempfile.TemporaryDirectory() as folder:
            await draw(browser, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
