"""What bytes are, guessed from how they begin, and a short piece of them to be beginning. Pure."""

from __future__ import annotations

import codecs
import re

from .images import image_of

__all__ = ["as_text", "preview", "sniff"]

# Of a value of any size no more is looked at.
LOOKED_AT = 4096

_MAGIC = (
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "ZIP"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\x93NUMPY", "NumPy"),
    (b"fLaC", "FLAC"),
    (b"OggS", "Ogg"),
    (b"ID3", "MP3"),
    (b"\x1aE\xdf\xa3", "Matroska"),
)
_HTML = re.compile(r"<(!doctype html|html|head|body)\b", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_DECODER = codecs.getincrementaldecoder("utf-8")
# Text has line feeds, tabs, carriage returns and form feeds; other control characters are of binary data.
_BINARY = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def sniff(value: bytes) -> str:
    """``"PNG"``, ``"JPEG"``, ``"HTML"``, ``"JSON"``, ``"text"``, ``"binary"``, ...; ``"empty"`` when there is none."""
    if not value:
        return "empty"
    if image := image_of(value[: 1 << 16]):
        return {"webp": "WebP"}.get(image.kind, image.kind.upper())
    for magic, kind in _MAGIC:
        if value.startswith(magic):
            return kind
    if value[:4] == b"RIFF" and value[8:12] == b"WAVE":
        return "WAV"
    if value[4:8] == b"ftyp":
        return "MP4"
    text = as_text(value)
    if text is None:
        return "binary"
    if _is_html(text):
        return "HTML"
    if text.lstrip().startswith("<?xml"):
        return "XML"
    ends = text.lstrip()[:1] + value[-64:].decode("utf-8", "replace").rstrip()[-1:]
    return "JSON" if ends in ("{}", "[]") else "text"


def _is_html(text: str) -> bool:
    """Whether it begins as a page does, after any number of comments: each is passed over once."""
    begin = 0
    while match := _SPACE.match(text, begin):
        begin = match.end()
        if not text.startswith("<!--", begin):
            break
        end = text.find("-->", begin + len("<!--"))
        if end < 0:
            return False
        begin = end + len("-->")
    return _HTML.match(text, begin) is not None


def as_text(value: bytes) -> str | None:
    """The beginning of a value as text; `None` where it is none."""
    head = value[:LOOKED_AT]
    try:
        # A character that the cut went through is no fault.
        text = _DECODER().decode(head, final=len(value) <= LOOKED_AT)
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text


def preview(value: bytes, most: int = 240) -> tuple[str, bool]:
    """A piece of a value, and whether it is text: the beginning of the text, or bytes in hexadecimal digits."""
    text = as_text(value)
    if text is None:
        beginning = value[: most // 5]
        return beginning.hex(" ") + (" …" if len(value) > len(beginning) else ""), False
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text[:most] + ("…" if len(text) > most or len(value) > LOOKED_AT else ""), True
