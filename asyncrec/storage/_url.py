"""Split, join and redact paths and URLs. Pure functions.

A path is local unless it has a scheme. In URLs of object stores, the key is literal: ``%``, ``?``, ``#``, spaces and
non-ASCII characters are part of the name, as in S3 and GCS. Only ``file:`` URLs are decoded, according to RFC 8089.

These functions only parse. A scheme before a single colon (``foo:bar.rec``) is valid only if ``foo`` is registered,
which the registry checks.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

# As in RFC 3986, but with at least two characters, because ``c:`` is a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
_WORD = re.compile(r"\S+")
_PORT = re.compile(r"[0-9]+$")
# The text before a URL's authority. A mistyped URL such as "https:/user:..." has only one slash. For other schemes, one
# slash is not enough, because a local path may contain ":/" but has no authority.
_AUTHORITY = re.compile(r"://|(?:[Hh][Tt][Tt][Pp][Ss]?|[Ss]3|[Gg][Ss]):/{1,2}")
_WEB = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?:/")
_PARAMETER = re.compile(r"([?&;#])([^?&#]*)")
_PLAIN = re.compile(r"[A-Za-z0-9._~:%/+-]*")
# Parameters whose values grant no access but help to diagnose a fault: the version or part of an object, the prefix of
# a listing, and the creation and expiry times of a redacted signature.
_HARMLESS = {
    *("versionid", "partnumber", "uploadid", "generation", "comp", "restype", "alt"),
    *("list-type", "prefix", "delimiter", "max-keys", "start-after"),
    *("x-amz-date", "x-amz-expires", "x-goog-date", "x-goog-expires", "expires", "se", "sv"),
}
_SECRET_HEADERS = ("authorization", "cookie", "password", "-token", "-key", "-secret", "-credential", "-signature")


def scheme_of(path: str | os.PathLike[str]) -> str:
    """Return the scheme before the first colon, in lower case. Return ``""`` for a local path and any `PathLike`."""
    if not isinstance(path, str):
        return ""
    match = _SCHEME.match(path)
    return match[1].lower() if match else ""


def split_path(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Split a path into ``(root, key)``: the root of a storage, and the key of an object in that storage.

    - ``"data/pages.tfrecord"`` -> ``("data", "pages.tfrecord")``; a bare name has the root ``"."``.
    - ``"file:///my%20data/x"`` -> ``("/my data", "x")``: decoded.
    - ``"file+aiofiles:///my%20data/x"`` -> ``("file+aiofiles:///my%20data", "x")``: the root keeps the driver.
    - ``"s3://bucket/a/b"`` -> ``("s3://bucket", "a/b")``: literal.

    The key is ``""`` if the path is only a root (``"data/"``, ``".."``, ``"s3://bucket"``). Except for ``file:``, a
    path with ``scheme:`` but without ``//`` is the name of a local file.

    Raises:
        ValueError: the path is empty, contains a NUL, or is a ``file:`` URL of another machine.
        TypeError: the path is neither `str` nor a `PathLike` of `str`.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ArgumentTypeError(f"a path must be a str or a PathLike of str, not {type(path).__name__}")
    if not text:
        raise ArgumentValueError("the path is empty")
    if "\0" in text:
        raise ArgumentValueError(f"the path contains a NUL character: {redact(text)!r}")
    scheme = scheme_of(path)
    if _is_file(scheme) and (scheme == "file" or "://" in text):
        root, key = _split_local(local_path(text))
        return (root, key) if scheme == "file" else (f"{scheme}://{quote(root)}", key)
    if scheme and text[len(scheme) :].startswith("://"):
        netloc, _, key = text[len(scheme) + 3 :].partition("/")
        return f"{text[: len(scheme)]}://{netloc}", key
    return _split_local(text)


def local_path(path: str) -> str:
    """Return the local path of a ``file:`` or ``file+driver:`` URL. Return a plain path unchanged.

    ``file:/x``, ``file:///x`` and ``file://localhost/x`` are equivalent (RFC 8089). Percent escapes are decoded.

    Raises:
        ValueError: the URL refers to another machine, is relative, or contains an escaped NUL.
    """
    scheme = scheme_of(path)
    if not _is_file(scheme):
        return path
    rest = path[len(scheme) + 1 :]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise ArgumentValueError(
                f"{redact(path)}: this file URL names another machine; the URL of a local file starts with three "
                f"slashes: {scheme}:///"
            )
        rest = slash + rest
    if not rest.startswith("/"):
        raise ArgumentValueError(
            f"{redact(path)}: a file URL must hold an absolute path; write a relative path without {scheme}:"
        )
    # Bytes that are not UTF-8 become lone surrogates, as in `os`.
    decoded = unquote(rest, errors="surrogateescape")
    if "\0" in decoded:
        raise ArgumentValueError(f"{redact(path)}: the path contains a NUL character")
    return decoded


def join(root: str, key: str) -> str:
    """Join ``root`` and ``key`` into a path. Except for file URLs, `split_path` is the inverse."""
    if root in ("", "."):
        return key
    if not key:
        return root
    return f"{root}{key}" if root.endswith(("/", ":")) else f"{root}/{key}"


def check_key(key: str) -> str:
    """Return the key unchanged if it is valid.

    The key of a local file whose name is not UTF-8 contains lone surrogates, as in `os`. A backend that cannot store
    such a key rejects it.

    Raises:
        ValueError: the key is empty, begins with ``/``, has a segment ``.`` or ``..``, or contains a NUL.
        TypeError: the key is not a `str`.
    """
    if not isinstance(key, str):
        raise ArgumentTypeError(f"a key must be a str, not {type(key).__name__}")
    if not key:
        raise ArgumentValueError("the key is empty: pass the name of an object, not of its folder or bucket")
    if key.startswith("/"):
        raise ArgumentValueError(f"the key {key!r} begins with '/', but keys are relative to the root of the storage")
    if "\0" in key:
        raise ArgumentValueError(f"the key {key!r} contains a NUL character")
    if any(segment in (".", "..") for segment in key.split("/")):
        raise ArgumentValueError(f"the key {key!r} has a segment '.' or '..', which is not allowed")
    return key


def redact(text: str) -> str:
    """Replace the secrets in every URL in ``text``: user-info, and query and fragment values unless harmless.

    The word after ``Bearer``, ``Basic`` or the name of a secret header is also replaced. If the end of a secret is
    ambiguous, the longer text is replaced, because passwords may contain ``/`` (as AWS keys do), ``@`` and spaces.
    """
    shown: list[str] = []
    done = 0  # the text before this position has been processed
    before, last_at = "", text.rfind("@")
    for found in _WORD.finditer(text):
        if found.start() < done:
            continue
        word, end = found[0], found.end()
        if _is_told_by(before):
            word = "***"
        elif end <= last_at and (begin := _of_open_user(word)):
            at = text.find("@", end)
            end = next(_WORD.finditer(text, at)).end()
            word = word[:begin] + "***" + text[at:end]
        if ":/" in word:
            word = _without_users(word)
        shown += (text[done : found.start()], _without_values(word))
        done, before = end, found[0]
    return "".join(shown) + text[done:]


def _is_told_by(word: str) -> bool:
    """Return whether a secret follows this word, such as ``Bearer`` or ``x-amz-security-token:``."""
    word = word.lower().rstrip("\"'")
    if word.endswith(":"):
        return any(each in word for each in _SECRET_HEADERS)
    return word.endswith(("bearer", "basic"))


def _of_open_user(word: str) -> int:
    """Return where a URL's user-info begins if it has a colon and continues after this word; otherwise, return 0."""
    begin = word.rfind("://") + 3
    user, colon, rest = word[begin:].partition(":")
    open_ = begin > 2 and colon and not set("/@[?#") & set(word[begin:]) and not _PORT.match(rest)
    return begin if user and open_ else 0


def _without_users(text: str) -> str:
    """Remove user-info from the URLs in a word. No part is searched twice, so this takes linear time."""
    if "@" not in text:
        return text
    shown: list[str] = []
    done = 0  # the text before this position has been processed
    query = last = -1  # the next "?", and the last "@" before it
    mark = _AUTHORITY.search(text)
    while mark is not None:
        begin = mark.end()
        slash = text.find("/", begin)
        authority = text[begin : len(text) if slash < 0 else slash]
        at = begin + authority.rfind("@")
        user, colon, rest = authority.partition(":")
        if colon and "@" not in user and not (slash >= 0 and _PORT.match(rest)):
            password = begin + len(user) + 1
            if query < password:
                query = text.find("?", password)
                query = len(text) if query < 0 else query
                last = text.rfind("@", password, query)
            at = max(at, last)
        if at >= begin:
            shown.append(text[done:begin] + "***")
            done = at
        mark = _AUTHORITY.search(text, max(begin, done))
    return "".join(shown) + text[done:]


def _without_values(word: str) -> str:
    """Replace the values of parameters. In an HTTP URL, also replace values without a name, which may be keys."""
    begin = word.find("?"), word.find("#")
    first = min((each for each in begin if each >= 0), default=-1)
    if first < 0 and ";" not in word and "&" not in word:
        return word
    bare = first if first >= 0 and _WEB.search(word, 0, first) else len(word)

    def shown(part: re.Match[str]) -> str:
        name, equals, value = part[2].partition("=")
        if name.lower() in _HARMLESS and _PLAIN.fullmatch(value):
            return part[0]
        if equals:
            return f"{part[1]}{name}=***"
        return f"{part[1]}***" if name and part.start() >= bare else part[0]

    return _PARAMETER.sub(shown, word)


def _is_file(scheme: str) -> bool:
    return scheme == "file" or scheme.startswith("file+")


def _split_local(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path)
    if name in (".", ".."):
        return path, ""
    return folder or ".", name
