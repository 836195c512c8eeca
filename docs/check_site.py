"""Check the built site: ``python docs/check_site.py site --axe axe.min.js`` (``make check-docs``).

Every link, picture and anchor must lead to a place within the site, which is checked without a browser. Then Chromium
opens each page from its file, at 390 pixels with the light theme and at 1,440 with the dark one. A page must print
nothing on the console, request nothing outside the folder, be no wider than the screen, and be at most `MOST_PIXELS`
high. axe-core checks contrast, headings, and the names that a screen reader announces.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import Browser, chromium

MOST_PIXELS = 15_000
RULES = [
    "aria-hidden-focus",
    "button-name",
    "color-contrast",
    "document-title",
    "duplicate-id-aria",
    "empty-heading",
    "heading-order",
    "html-has-lang",
    "image-alt",
    "label",
    "landmark-one-main",
    "link-name",
    "list",
    "listitem",
    "page-has-heading-one",
]
AXE = """
axe.run(document, {runOnly: {type: "rule", values: %s}}).then((found) => JSON.stringify(
  found.violations.map(({id, nodes}) => [id, nodes.length, nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])
))
"""


class Page(HTMLParser):
    """Collects the links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken(site: Path) -> list[str]:
    """Return the broken links, each with its page."""
    pages = {file: Page(file.read_text("utf-8")) for file in site.rglob("*.html")}
    found = []
    for file, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            # The page for missing addresses (404) is shown at any address, so its links begin at the root.
            beginning = site if url.path.startswith("/") and file.name == "404.html" else file.parent
            target = (beginning / unquote(url.path).lstrip("/")).resolve() if url.path else file
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(url.fragment) not in anchors:
                found.append(f"{file.relative_to(site)}: {link} leads nowhere")
    return sorted(found)


def opened(site: Path, only: str) -> list[Path]:
    """Return the pages that can be opened from their files."""
    files = (file for file in site.rglob("*.html") if file.name != "404.html")
    return sorted(file for file in files if only in str(file.relative_to(site)))


async def looked_at(browser: Browser, site: Path, file: Path, axe: str, *, width: int, dark: bool) -> list[str]:
    """Return the problems of a page at this width."""
    where = f"{file.relative_to(site)} at {width} pixels, {'dark' if dark else 'light'}"
    async with browser.page(file, width=width, height=900, dark=dark) as measures:
        left = [url for url in measures["asked"] if not url.startswith((site.as_uri(), "data:", "blob:"))]
        wrong = [
            *(f"{where}: on the console: {said}" for said in measures["said"]),
            *(f"{where}: asks for {url}" for url in left),
            *([f"{where}: is {measures['width']} wide"] if measures["width"] > width else []),
            *([f"{where}: is {measures['height']:,} high"] if measures["height"] > MOST_PIXELS else []),
        ]
        await browser.value(axe + "\n0")
        for rule, count, nodes in json.loads(await browser.value(AXE % json.dumps(RULES))):
            wrong.append(f"{where}: {rule}, {count} times: {nodes}")
        print(f"{where}: {measures['height']:,} high, {len(wrong)} wrong", flush=True)
        return wrong


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--axe", type=Path, required=True, metavar="axe.min.js")
    parser.add_argument("--only", default="", metavar="TEXT", help="pages whose path has this")
    options = parser.parse_args()
    site: Path = options.site.resolve()
    wrong = broken(site)
    pages = opened(site, options.only)
    axe = options.axe.read_text("utf-8")
    async with chromium() as browser:
        for file in pages:
            wrong += await looked_at(browser, site, file, axe, width=390, dark=False)
            wrong += await looked_at(browser, site, file, axe, width=1440, dark=True)
    sys.exit("\n".join([*wrong, f"{len(wrong)} things are wrong"]) if wrong else 0)


if __name__ == "__main__":
    asyncio.run(main())
