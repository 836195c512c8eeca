"""Text remains text, whatever it contains, and the page cannot contain anything that runs or loads."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree.ElementTree import tostring

import pytest
from asyncrec_report.html import clean, document, el
from hypothesis import given
from hypothesis import strategies as st


class _Text(HTMLParser):
    """The tags and the text of a page as a browser's parser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: str) -> _Text:
    parser = _Text()
    parser.feed(page)
    parser.close()
    return parser


@given(st.text())
def test_text_round_trips_through_element_and_attribute(text: str) -> None:
    found = parsed(tostring(el("p", text, el("code", "x"), text, title=text), encoding="unicode", method="html"))
    assert found.tags == ["p", "code"]
    assert found.attributes == [("title", clean(text))]
    assert found.text == clean(text) + "x" + clean(text)


@given(st.text())
def test_document_contains_only_given_elements(text: str) -> None:
    page = document(title=text, description=text, stylesheet="p{}", body=[el("p", text)])
    tags = ["html", "head", "meta", "meta", "meta", "meta", "meta", "meta", "title", "link", "style", "body", "p"]
    assert parsed(page).tags == tags
    page.encode()  # no half of a surrogate pair is left


@pytest.mark.parametrize("tag", ["script", "style", "iframe", "object", "embed", "link", "base", "form", "meta"])
def test_element_outside_allowlist_is_rejected(tag: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        el(tag)


@pytest.mark.parametrize("name", ["onclick", "onload", "style", "srcset", "formaction", "http_equiv", "srcdoc"])
def test_attribute_outside_allowlist_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        el("p", **{name: "x"})


@pytest.mark.parametrize(
    "attribute",
    [
        {"href": "javascript:alert(1)"},
        {"href": "https://example.org"},
        {"src": "https://example.org/a.png"},
        {"src": "data:text/html;base64,AAAA"},
        {"src": "data:image/svg+xml;base64,AAAA"},
        {"src": 'data:image/png;base64,AAAA"onerror=alert(1)'},
    ],
)
def test_external_link_is_rejected(attribute: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is a link out of the report"):
        el("img", **attribute)  # type: ignore[arg-type]  # each value is text


def test_clean_escapes_controls_direction_marks_and_broken_characters() -> None:
    assert clean("a\x00\x1b\u202e\ud800\n\tb") == "a\\x00\\x1b\\u202e\\ud800\n\tb"


def test_policy_allows_only_own_style_sheet_and_embedded_images() -> None:
    page = document(title="t", description="d", stylesheet="p{}", body=[])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert re.fullmatch(
        r"default-src 'none'; img-src data:; style-src 'sha256-[\w+/]{43}='; base-uri 'none'; form-action 'none'",
        policy,
    )
    with pytest.raises(ValueError, match="style sheet"):
        document(title="t", description="d", stylesheet="</style>", body=[])


def test_text_numbers_have_thousands_separators_and_attributes_have_none() -> None:
    element = el("td", 1234567, " of ", 2, width=10.5, height=3.0, class_=None)
    assert tostring(element, encoding="unicode", method="html") == '<td width="10.5" height="3">1,234,567 of 2</td>'
