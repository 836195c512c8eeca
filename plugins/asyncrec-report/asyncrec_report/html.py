"""HTML as a tree of elements. The standard library's serializer writes it, so that no markup can be injected.

`el` accepts elements and strings. A string becomes escaped text or an escaped attribute, but never markup. The page
cannot run or fetch anything, because only the elements and attributes listed below are allowed, and only the addresses
of anchors on the page and of images in ``data:`` URIs. Elements have no ``style`` attribute, so the page's policy can
forbid all styles except those in its style sheet.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring

Child: TypeAlias = "Element | str | int | Iterable[Child] | None"

# fmt: off
_ELEMENTS = frozenset({
    "a", "abbr", "article", "code", "dd", "details", "div", "dl", "dt", "figcaption", "figure", "footer", "h1", "h2",
    "h3", "header", "img", "li", "main", "nav", "ol", "p", "pre", "section", "small", "span", "strong", "summary",
    "table", "tbody", "td", "th", "thead", "time", "tr", "ul", "svg", "g", "rect", "line", "path", "circle", "title",
})
_ATTRIBUTES = frozenset({
    "alt", "aria-hidden", "aria-label", "class", "colspan", "datetime", "height", "href", "id", "loading", "open",
    "role", "scope", "src", "title", "width",
    "cx", "cy", "d", "fill", "opacity", "preserveAspectRatio", "r", "rx", "viewBox", "x", "x1", "x2", "y", "y1", "y2",
})
# fmt: on
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")

# Characters that a browser cannot show, or that change the direction of surrounding text: C0 except tab and line feed,
# DEL and C1; separators and direction marks; lone surrogates, which UTF-8 cannot encode; and XML's non-characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Replace characters that cannot be shown with escapes."""
    return _UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if match[0] < "\x80" else f"\\u{ord(match[0]):04x}", text
    )


def el(tag: str, /, *children: Child, **attributes: str | int | float | None) -> Element:
    """Return an element. ``class_`` sets ``class``, and ``aria_label`` sets ``aria-label``. `None` is omitted.

    Raises:
        ValueError: the element, an attribute or an address is not allowed, because of a bug in this plugin.
    """
    if tag not in _ELEMENTS:
        raise ValueError(f"<{tag}> is not allowed in a report")
    element = Element(tag)
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if name not in _ATTRIBUTES:
            raise ValueError(f"{name}= is not allowed in a report")
        if value is None:
            continue
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else clean(str(value))
        if (name == "href" and not text.startswith("#")) or (name == "src" and not _IMAGE.fullmatch(text)):
            raise ValueError(f"{name}={text[:40]!r} is a link out of the report, which is not allowed")
        element.set(name, text)
    _append(element, children)
    return element


def document(*, title: str, description: str, stylesheet: str, body: Iterable[Child]) -> str:
    """Return the page, whose policy forbids scripts, loading, and all styles except ``stylesheet`` (by its hash).

    ``stylesheet`` must be trusted, because it is not escaped.
    """
    if "<" in stylesheet:
        raise ValueError("a style sheet must not contain '<', which could end its element")
    digest = b64encode(hashlib.sha256(stylesheet.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )  # fmt: skip
    root = Element("html", {"lang": "en"})
    head = SubElement(root, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    SubElement(head, "meta", {"name": "color-scheme", "content": "light dark"})
    SubElement(head, "meta", {"name": "referrer", "content": "no-referrer"})
    SubElement(head, "meta", {"name": "description", "content": clean(description)})
    SubElement(head, "title").text = clean(title)
    SubElement(head, "link", {"rel": "icon", "href": "data:,"})  # prevents a request for an icon
    SubElement(head, "style").text = stylesheet
    _append(SubElement(root, "body"), body)
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _append(element: Element, children: Child) -> None:
    if children is None:
        return
    if isinstance(children, Element):
        element.append(children)
    elif isinstance(children, str | int):
        text = clean(f"{children:,}" if isinstance(children, int) else children)
        if len(element):
            element[-1].tail = (element[-1].tail or "") + text
        else:
            element.text = (element.text or "") + text
    else:
        for child in children:
            _append(element, child)
