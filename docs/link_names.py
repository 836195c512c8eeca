"""A hook of MkDocs: a public name in backticks leads to the reference, where a section first has it.

So the pages stay plain Markdown, as they are read in the repository. A name is linked if it is written with its module
(`asyncrec.tools.copy`, `tools.copy`), or alone where nothing else can be meant: it has a capital letter, an underscore
or parentheses, and one module alone has it. Pages about other systems name those systems' classes: there, only what
begins with ``asyncrec.`` is ours.
"""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

DOCUMENTED = re.compile(r"^::: (asyncrec\.[\w.]+)$", re.MULTILINE)
# A heading, with which a section begins; what is kept as it is; code by itself.
PIECE = re.compile(r"(<h[1-6]\b.*?</h[1-6]>)|<(pre|a|autoref)\b.*?</\2>|<code>([^<]+)</code>", re.DOTALL)
NAME = re.compile(r"(?:await )?([A-Za-z]\w*(?:\.[A-Za-z]\w*)*)(\(.*\))?", re.DOTALL)


def last(name: str) -> str:
    return name.rpartition(".")[2]


class Names:
    """What is in the reference, by each way in which a page may write it."""

    def __init__(self, documented: list[str]) -> None:
        self._full = set(documented)
        # What blocking has is named as what it stands for.
        others = [name for name in documented if not name.startswith("asyncrec.blocking.")]
        count = Counter(last(name) for name in others)
        self._alone = {last(name): name for name in others if count[last(name)] == 1}

    def anchor(self, code: str, *, ours_alone: bool = False) -> str | None:
        """Where the reference has what the code names, or None: ``asyncrec.Schema.decode`` for `Schema.decode(...)`."""
        match = NAME.fullmatch(code)
        if match is None or (ours_alone and not code.startswith("asyncrec.")):
            return None
        name, call = match.groups()
        for full in (name, f"asyncrec.{name}", self._alone.get(name)):
            if full in self._full and ("." in name or call or re.search("[A-Z_]", name)):
                return full
        owner, _, member = name.rpartition(".")
        kind = owner if owner in self._full else self._alone.get(owner)
        return f"{kind}.{member}" if kind is not None and last(kind)[0].isupper() else None


def linked(html: str, names: Names, *, ours_alone: bool = False) -> str:
    """The page with a reference around each such code, the first of a section; mkdocs-autorefs makes links of them."""
    seen: set[str] = set()

    def piece(match: re.Match[str]) -> str:
        if match[1]:
            seen.clear()
        anchor = names.anchor(unescape(match[3]), ours_alone=ours_alone) if match[3] else None
        if anchor is None or anchor in seen:
            return match[0]
        seen.add(anchor)
        return f'<autoref identifier="{anchor}" optional>{match[0]}</autoref>'

    return PIECE.sub(piece, html)


def names_of(docs: Path) -> Names:
    pages = [page.read_text("utf-8") for page in sorted(docs.glob("reference/*.md"))]
    return Names([name for page in pages for name in DOCUMENTED.findall(page)])


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    about_others = page.file.src_uri.startswith("coming-from/")
    return linked(html, names_of(Path(config.docs_dir)), ours_alone=about_others)
