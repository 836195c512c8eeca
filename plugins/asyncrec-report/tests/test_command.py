"""``asyncrec report`` writes a page to a file, and its exit code reports damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_report_command_writes_page_and_prints_path(run: Run, data: Path) -> None:
    result = run("report", "data/plain.tfrecord", "-o", "page.html")
    assert result.code == 0
    assert result.out.startswith("page.html: ")
    page = Path("page.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "plain.tfrecord" in page
    run("report", "data")
    assert Path("report.html").exists(), "unless told otherwise"


def test_report_command_shows_damage_and_exits_with_1(run: Run, damaged: Path) -> None:
    result = run("report", damaged, "-o", "page.html")
    assert result.code == 1
    assert "DAMAGED: 1 of 1 shards" in result.out
    assert "does not match its checksum" in Path("page.html").read_text("utf-8")


def test_report_command_suggests_checking_text_file_format(run: Run, data: Path) -> None:
    Path("rows.tfrecord").write_text("id,label\n" * 100)
    result = run("report", "rows.tfrecord", "-o", "page.html")
    assert result.code == 1
    assert "check that this is a TFRecord file" in result.out
    assert result.err == ""


def test_report_command_prints_json_for_programs(run: Run, data: Path) -> None:
    result = run("report", "data/plain.tfrecord", "-o", "page.html", "--json", "--sample", 2)
    told = json.loads(result.out)
    assert (told["read"], told["sampled"], told["faults"]) == (2, True, [])
    assert told["output_bytes"] == Path("page.html").stat().st_size


def test_invalid_input_writes_no_page(run: Run, data: Path) -> None:
    for arguments, code, message in [
        (["data/nothing.tfrecord"], 3, "there is no such file"),
        (["data/plain.tfrecord", "--all", "--sample", "5"], 2, "--all and --sample cannot be combined"),
        (["data/plain.tfrecord", "--sample", "0"], 2, "Invalid value for '--sample'"),
        (
            ["data/plain.tfrecord", "--class-feature", "nope"],
            2,
            "none of the records that were read has the feature 'nope'",
        ),
        (["data/plain.tfrecord", "--nonsense"], 2, "--nonsense"),
    ]:
        result = run("report", *arguments, "-o", "page.html")
        assert (result.code, message in result.err) == (code, True), (arguments, result.err)
        assert not Path("page.html").exists()


def test_report_command_treats_unwritable_output_as_storage_error(run: Run, data: Path) -> None:
    Path("file").write_bytes(b"")
    result = run("report", "data/plain.tfrecord", "-o", "file/page.html")
    assert result.code == 3
    assert "file" in result.err
