"""A revisit is a page whose body is stored already, with the page that it refers to. Pure.

A crawl that requests its pages again gets most of them unchanged. A page that is made with ``before=``, the stored
version, becomes a revisit if the server said that nothing has changed (304), or if the body is the same. It has no
content, and says where the body is: the URL and the date of the page that has it. A revisit of a revisit refers to that
page as well, so a body is always one look-up away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncrec.errors import ArgumentTypeError
from asyncrec.pages._headers import header_of

# WARC-Profile: why a record has no body.
SAME_BODY = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

REFERS_TO = ("refers_to_url", "refers_to_date", "refers_to")
# What a 304 does not say of the page, and what does not go over to the next response: RFC 9111, 3.2.
_OF_BODY = ("status", "reason", "content_type", "charset", "encoding", "truncated")
_OF_MESSAGE = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
_VALIDATORS = {"If-None-Match": b"etag", "If-Modified-Since": b"last-modified"}


def is_revisit(page: Mapping[str, Any]) -> bool:
    """Return whether a page is a revisit: its body is that of the page that it refers to, and it has no content."""
    return bool(page.get("type") == "revisit")


def referring(page: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Give the revisit that a page is of ``before``; if it is not a revisit, the page as it is.

    Raises:
        TypeError: ``before`` is not a page.
    """
    if not isinstance(before, Mapping) or "url" not in before:
        raise ArgumentTypeError(
            f"before must be a page, not {type(before).__name__}; decode a record with pages.PAGE.decode"
        )
    digest, target = before.get("digest", ""), _target(before)
    # A revisit has the key of its body, so that both are deleted together. The key of a request with another method
    # depends on its body, which a page does not have.
    if not digest or target is None or page["url"] != before["url"] or not _is_get(page) or not _is_get(before):
        return page
    if page["status"] == 304:
        if not _answers_for(before) or page["final_url"] != before.get("final_url", ""):
            return page  # a redirect has led to another resource, and that has not changed
        profile = NOT_MODIFIED
    elif page["content"] and page["digest"] == digest and _has_no_other_body(before, page["content"]):
        profile = SAME_BODY
    else:
        return page
    return {**repeating(page, target, digest), "profile": profile}


def repeating(page: Mapping[str, Any], target: tuple[str, str, str], digest: str) -> dict[str, Any]:
    """Give the revisit that a page is of another one with the same body, of which these are URL, date and record_id."""
    referred = dict(zip(REFERS_TO, target, strict=True))
    return {**page, "content": b"", "type": "revisit", "digest": digest, "profile": SAME_BODY, **referred}


def validators(page: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request that asks whether a page has changed: by its ETag, and by its date; perhaps none."""
    if not _answers_for(page) or not _is_get(page) or page.get("truncated") in ("time", "disconnect"):
        return {}
    found = {name: header_of(page.get("headers", b""), of) for name, of in _VALIDATORS.items()}
    # Not every client can send others as they came.
    return {name: value for name, value in found.items() if value and value.isascii() and value.isprintable()}


def resolved(revisit: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """The page that a revisit stands for: with the body of the page that it refers to, and what the revisit says.

    Of a response without a body of its own (304, or no response at all), the page has the status and the headers of the
    original, and of these the newer ones that it sent.
    """
    page = {
        **revisit,
        "content": original["content"],
        "type": original.get("type", "response"),
        **dict.fromkeys((*REFERS_TO, "profile"), ""),
    }
    if revisit["status"] in (0, 304):
        page.update({name: original[name] for name in _OF_BODY if name in original})
        page["headers"] = _freshened(original.get("headers", b""), revisit.get("headers", b""))
    return page


def _target(page: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What a revisit of this page refers to: itself, or if it is a revisit, what that refers to."""
    if not is_revisit(page):
        return page["url"], page.get("date", ""), page.get("record_id", "")
    url, date, record = (page.get(name, "") for name in REFERS_TO)
    return (url, date, record) if url else None


def _answers_for(page: Mapping[str, Any]) -> bool:
    """Whether a server may say of this page that it has not changed."""
    return page.get("status") == 200 or (page.get("status") == 304 and is_revisit(page))


def _is_get(page: Mapping[str, Any]) -> bool:
    return bool(page.get("method", "GET") == "GET")


def _has_no_other_body(page: Mapping[str, Any], content: bytes) -> bool:
    """Digests are SHA-1, of which two contents may be made alike; where the other one is at hand, it is compared."""
    return is_revisit(page) or page.get("content", content) == content


def _freshened(stored: bytes, sent: bytes) -> bytes:
    """The stored headers, and in the place of older ones those that were sent with a 304."""

    def name_of(line: bytes) -> bytes:
        return line.partition(b":")[0].strip().lower()

    newer = [line for line in sent.split(b"\n") if _is_of_page(name_of(line))]
    replaced = {name_of(line) for line in newer}
    return b"\n".join([*(line for line in stored.split(b"\n") if line and name_of(line) not in replaced), *newer])


def _is_of_page(name: bytes) -> bool:
    return bool(name) and not name.startswith(b"content-") and name not in _OF_MESSAGE
