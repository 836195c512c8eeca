"""The type of bytes is guessed from how they begin, and a short excerpt is shown."""

from __future__ import annotations

import pytest
from asyncrec_report.texts import LOOKED_AT, preview, sniff
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"", "empty"),
        (b"plain words", "text"),
        ("é".encode() * LOOKED_AT, "text"),
        (b"a" + "é".encode() * LOOKED_AT, "text"),
        (b"\xff\xfe\xfd", "binary"),
        (b"a\0b", "binary"),
        (b' {"a": 1}\n', "JSON"),
        (b"[" + b"1," * LOOKED_AT + b"1]", "JSON"),
        (b"{ no end", "text"),
        (b"<!-- c -->\n<!DOCTYPE html><p>", "HTML"),
        (b"<html lang=en>", "HTML"),
        (b" <!-- a --> <!---->\n<!-- <p> -- > -->\n<body>", "HTML"),
        (b"<!-- <html> --><p>", "text"),
        (b"<!-- <html>", "text"),
        (b"<!--><html>", "text"),
        (b"<htmlx>", "text"),
        (b"<?xml version='1.0'?><svg/>", "XML"),
        (b"%PDF-1.7", "PDF"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"RIFF....WAVEfmt ", "WAV"),
        (b"\0\0\0\x20ftypisom", "MP4"),
        (b"GIF89a\x10\0\x10\0", "GIF"),
    ],
)
def test_sniff_recognises_kind_of_bytes(value: bytes, kind: str) -> None:
    assert sniff(value) == kind


def test_sniff_handles_long_run_of_comments() -> None:
    """A pattern that could match the comments in many ways would never finish."""
    assert sniff(b"<!---->" * 500 + b"<p>") == sniff(b"<!---->" * 500) == "text"
    assert sniff(b"<!---->" * 500 + b"<html>") == "HTML"


def test_preview_shortens_text_and_bytes() -> None:
    assert preview(b"short") == ("short", True)
    assert preview(b"x" * 300) == ("x" * 240 + "…", True)
    assert preview(b"\x00\xff") == ("00 ff", False)
    assert preview(bytes(100), 50) == ("00 " * 9 + "00 …", False)


@given(st.binary(max_size=300))
def test_sniff_and_preview_accept_any_bytes(value: bytes) -> None:
    assert sniff(value)
    assert len(preview(value)[0]) <= 242
