"""Revisits: pages whose body is stored with a different page, to which they refer. This module does no I/O.

When a crawl requests its pages again, most pages are unchanged. A page made with ``before=``, the stored version,
becomes a revisit if the server reports no change (304) or if the body is the same. Instead of content, a revisit has
the URL and the date of the page that has the body. A revisit of a revisit also refers to the page that has the body, so
every body is one look-up away.

A 304 has no description of its body, such as the status and most headers. The stored version has them. If that version
is the page with the body, `resolved` takes them from there. If it is a page with the same body as an older one, the
older one may have a different description, so the 304 is stored with the version's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncrec.errors import ArgumentTypeError
from asyncrec.pages._headers import header_of

# The values of WARC-Profile, which states why a record has no body.
SAME_BODY = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

REFERS_TO = ("refers_to_url", "refers_to_date", "refers_to")
# The features that a 304 response does not have, and the headers that it does not update (RFC 9111, section 3.2).
_OF_BODY = ("status", "reason", "content_type", "charset", "encoding", "truncated")
_OF_MESSAGE = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
_VALIDATORS = {"If-None-Match": b"etag", "If-Modified-Since": b"last-modified"}


def is_revisit(page: Mapping[str, Any]) -> bool:
    """Return whether a page is a revisit. A revisit has no content, because the page that it refers to has the body."""
    return bool(page.get("type") == "revisit")


def may_share(page: Mapping[str, Any]) -> bool:
    """Return whether a page may become a revisit of a page with the same body, or be that page for another revisit.

    Resolving a revisit sets its type and, for a 304, its status to those of the page that has the body (`resolved`).
    This would change a page of a different type, or a 304 with content, so such a page is stored with its own body.
    """
    return page.get("type", "response") == "response" and page.get("status") != 304


def referring(page: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page as a revisit of ``before``, or unchanged if it is not a revisit.

    Raises:
        TypeError: ``before`` is not a page.
    """
    if not isinstance(before, Mapping) or "url" not in before:
        raise ArgumentTypeError(
            f"before must be a page, not {type(before).__name__}; decode a record with pages.PAGE.decode"
        )
    digest, target = before.get("digest", ""), _target(before)
    # A revisit has the key of the page with its body, so that both are deleted together. For a method other than GET,
    # the key depends on the request's body, which a page does not contain.
    if not digest or target is None or page["url"] != before["url"] or not _is_get(page) or not _is_get(before):
        return page
    if page["status"] == 304:
        if not _answers_for(before) or page["final_url"] != before.get("final_url", ""):
            return page  # a redirect led to a different resource, to which the 304 applies
        profile = NOT_MODIFIED
        if before["status"] != 304 and is_revisit(before):
            page = _described(page, before, page["headers"])
    elif page["content"] and page["digest"] == digest and _may_repeat(page, before):
        profile = SAME_BODY
    else:
        return page
    return {**repeating(page, target, digest), "profile": profile}


def repeating(page: Mapping[str, Any], target: tuple[str, str, str], digest: str) -> dict[str, Any]:
    """Return ``page`` as a revisit of the page ``target`` (URL, date and record_id), whose body has ``digest``."""
    referred = dict(zip(REFERS_TO, target, strict=True))
    return {**page, "content": b"", "type": "revisit", "digest": digest, "profile": SAME_BODY, **referred}


def validators(page: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a conditional request for a page, or ``{}`` if no such request is possible."""
    if not _answers_for(page) or not _is_get(page):
        return {}
    found = {name: header_of(page.get("headers", b""), of) for name, of in _VALIDATORS.items()}
    # Not every client can send values with other characters unchanged.
    return {name: value for name, value in found.items() if value and value.isascii() and value.isprintable()}


def resolved(revisit: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page that a revisit represents: the revisit's features with the body of the original.

    If the revisit has the status 304 or had no response, the page has the status and the headers of the original,
    updated with the headers of the revisit.
    """
    page = {
        **revisit,
        "content": original["content"],
        "type": original.get("type", "response"),
        **dict.fromkeys((*REFERS_TO, "profile"), ""),
    }
    return _described(page, original, revisit.get("headers", b"")) if revisit["status"] in (0, 304) else page


def _described(page: Mapping[str, Any], by: Mapping[str, Any], sent: bytes) -> dict[str, Any]:
    """Return a page with the description of its body from ``by``, updated with the headers ``sent`` with a 304."""
    described = {name: by[name] for name in _OF_BODY if name in by}
    return {**page, **described, "headers": _freshened(by.get("headers", b""), sent)}


def _target(page: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the page to which a revisit of ``page`` must refer: the page itself or, if it is a revisit, its target.

    Return `None` if that target is unknown.
    """
    if not is_revisit(page):
        return page["url"], page.get("date", ""), page.get("record_id", "")
    url, date, record = (page.get(name, "") for name in REFERS_TO)
    return (url, date, record) if url else None


def _answers_for(page: Mapping[str, Any]) -> bool:
    """Return whether a 304 may refer to this page."""
    whole = page.get("truncated", "") in ("", "length")
    return whole and (page.get("status") == 200 or (page.get("status") == 304 and is_revisit(page)))


def _is_get(page: Mapping[str, Any]) -> bool:
    return bool(page.get("method", "GET") == "GET")


def _may_repeat(page: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a page may be a revisit of a version with the same digest.

    If the stored content is known, it is also compared, because SHA-1 digests can be made to collide.
    """
    content = page["content"]
    return may_share(page) and (is_revisit(before) or before.get("content", content) == content)


def _freshened(stored: bytes, sent: bytes) -> bytes:
    """Return the stored headers, updated with the headers of a 304."""

    def name_of(line: bytes) -> bytes:
        return line.partition(b":")[0].strip().lower()

    newer = [line for line in sent.split(b"\n") if _is_of_page(name_of(line))]
    replaced = {name_of(line) for line in newer}
    return b"\n".join([*(line for line in stored.split(b"\n") if line and name_of(line) not in replaced), *newer])


def _is_of_page(name: bytes) -> bool:
    return bool(name) and not name.startswith(b"content-") and name not in _OF_MESSAGE
