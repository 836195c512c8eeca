"""Draw the pictures of the documentation from real runs: ``python docs/make_pictures.py [--check PAGE.html ...]``.

``pictures/demo.png`` is the screen of ``make demo``, and ``pictures/report.png`` is the report of the demo's data set.
Headless Chromium, which must be on the PATH, draws both. ``make pictures`` runs this program.

Every drawn page is also checked at 390 and 1,440 pixels, with the light and the dark theme: no message on the console,
no request except for the page itself, nothing wider than the screen. ``--check`` checks any pages, and draws nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

from browser import Browser, chromium
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


def right(file: Path, width: int, measures: dict[str, Any]) -> None:
    if measures["said"] or measures["asked"] or measures["outside"] or measures["width"] > width:
        sys.exit(f"{file} at {width} pixels: {measures}")


async def check(browser: Browser, pages: list[Path]) -> None:
    for file in pages:
        for width in (390, 1440):
            for dark in (False, True):
                async with browser.page(file, width=width, height=900, dark=dark) as measures:
                    right(file, width, measures)
                    scheme = "dark" if dark else "light"
                    print(f"{file.name}: right at {width} pixels, {scheme}, {measures['height']} high")


def terminal(command: list[str], folder: Path) -> str:
    """Return the output of a command in a terminal of `COLUMNS` columns, with its colours."""
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
    """Return a page that shows the prompt and the final screen, without progress bars that were removed."""
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
    """Reduce a picture to 256 colours, which takes a third of the bytes without a visible difference."""
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
        right(page, 1440, measures)
        width = int(await browser.value("Math.ceil(document.body.getBoundingClientRect().width)"))
        keep("demo.png", await browser.picture(width=width, height=measures["height"]))

    report = [sys.executable, "-m", "asyncrec.cli", "report", "demo-data/pages", "-o", "report.html"]
    process = await asyncio.create_subprocess_exec(*report, cwd=folder)
    if await process.wait():
        sys.exit("make_pictures: the report failed")
    await check(browser, [folder / "report.html"])
    async with browser.page(folder / "report.html", width=1200, height=900, dark=False) as measures:
        right(folder / "report.html", 1200, measures)
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
