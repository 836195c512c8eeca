"""A hook of MkDocs that links public names in backticks to the reference, at their first use in a section.

The pages themselves stay plain Markdown, because they are also read in the repository. A name is linked if it is
written with its module (`asyncrec.tools.copy`, `tools.copy`), or if it is unambiguous without one: it has a capital
letter, an underscore or parentheses, and is in only one module. Pages about other systems also name the classes of
those systems. On these pages, only names that begin with ``asyncrec.`` are linked.
"""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

DOCUMENTED = re.compile(r"^::: (asyncrec\.[\w.]+)$", re.MULTILINE)
# A heading, which begins a section; text that is kept unchanged; code in backticks.
PIECE = re.compile(r"(<h[1-6]\b.*?</h[1-6]>)|<(pre|a|autoref)\b.*?</\2>|<code>([^<]+)</code>", re.DOTALL)
NAME = re.compile(r"(?:await )?([A-Za-z]\w*(?:\.[A-Za-z]\w*)*)(\(.*\))?", re.DOTALL)


def last(name: str) -> str:
    return name.rpartition(".")[2]


class Names:
    """The names in the reference, in every form in which a page may write them."""

    def __init__(self, documented: list[str]) -> None:
        self._full = set(documented)
        # A name in blocking is listed under the name of its async twin.
        others = [name for name in documented if not name.startswith("asyncrec.blocking.")]
        count = Counter(last(name) for name in others)
        self._alone = {last(name): name for name in others if count[last(name)] == 1}

    def anchor(self, code: str, *, ours_alone: bool = False) -> str | None:
        """Return the full name for code such as `Schema.decode(...)` (``asyncrec.Schema.decode``), or None."""
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
    """Mark the first use of each name in a section, for mkdocs-autorefs, which makes the links."""
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
    """MkDocs calls this for each page."""
    about_others = page.file.src_uri.startswith("coming-from/")
    return linked(html, names_of(Path(config.docs_dir)), ours_alone=about_others)
