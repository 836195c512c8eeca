"""No terminal control characters are printed, whatever the input contains."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec.cli._output import clean, human_bytes, pairs, print_json, table
from asyncrec.cli._standard_streams import Warnings


@given(st.text(st.characters()))
def test_clean_text_is_printable_except_line_feeds(text: str) -> None:
    cleaned = clean(text)
    assert all(character == "\n" or not 0 <= ord(character) < 32 for character in cleaned)
    assert not set(cleaned) & set("\x7f\x9b\x85\u202e\u2066\u2028\ufeff\ud800")
    assert "\n" not in clean(text, line=True)


def test_clean_escapes_control_characters_only() -> None:
    assert clean("Grüße, 世界 — ok\n") == "Grüße, 世界 — ok\n"
    assert clean("a\tb\x1b[0m\x07") == "a\\tb\\x1b[0m\\x07"


def test_json_output_is_ascii_and_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a\x7f": "\x1b\u202e\u009bü\ud800"}
    print_json(value)
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == value


def test_foreign_log_warning_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    with Warnings() as warnings:
        logging.getLogger("somebody.else").warning("an address: %s", "http://a b\x1b]0;x\x07")
    assert capsys.readouterr().err == "asyncrec: an address: http://a b\\x1b]0;x\\x07\n"
    assert len(warnings.reported) == 1


def test_tables_align_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    table(["name", "count"], [("a\nb", 1), ("c", 12_345)])
    assert capsys.readouterr().out == "name   count\na\\nb       1\nc     12,345\n"
    table(["nothing"], [])
    assert capsys.readouterr().out == "nothing\n"


def test_pairs_omit_missing_entries(capsys: pytest.CaptureFixture[str]) -> None:
    pairs({"a": 1, "bcd": None, "ef": "x\ny"})
    assert capsys.readouterr().out == "a   1\nef  x\n    y\n"


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 60, "1048576.0 TiB")],
)
def test_sizes_are_formatted_with_binary_units(size: int, shown: str) -> None:
    assert human_bytes(size) == shown
