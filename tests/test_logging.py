"""Log records can be processed by machines: each one has fields in addition to its text, and none contains a secret."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import asyncrec
from asyncrec._path_log import PathLog

from .parsed import nodes

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# "file: start of the message" -> why it has no fields.
BARE = {
    "asyncrec/_shards/journal/staging.py: nothing on this machine will prove": "it is of no data set",
    "asyncrec/plugins/_manager.py: the entry points of the installed": "it is of no plugin",
}
# An imitation logs the same messages as the original.
IMITATIONS = "asyncrec/compat/"
# Attributes that `logging` does not allow to be overwritten, or that it would hide.
TAKEN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def calls() -> list[tuple[str, ast.Call]]:
    return [
        (name, node)
        for name, node in nodes(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("_log", "_path_log", "logger")
        and node.func.attr in LEVELS
        and not name.startswith(IMITATIONS)
    ]


def test_logged_lines_have_fields_or_are_listed() -> None:
    bare = []
    for name, call in calls():
        if any(keyword.arg == "extra" for keyword in call.keywords):
            continue
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "_path_log":
            continue  # its path is a field already
        words = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        listed = [
            each for each in BARE if each.startswith(f"{name}: ") and str(words).startswith(each.split(": ", 1)[1])
        ]
        if not listed:
            bare.append(f"{name}:{call.lineno}")
    assert len(calls()) > 30
    assert bare == []


def test_log_fields_avoid_names_reserved_by_logging() -> None:
    names = {
        key.value
        for _, node in nodes(ast.keyword)
        if node.arg == "extra" and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    for _, call in calls():
        if ast.unparse(call.func).startswith("_path_log."):
            names.update(keyword.arg for keyword in call.keywords if keyword.arg)
    assert {"path", "writer", "shard", "lost"} <= names
    assert names & TAKEN == set()


def test_path_log_line_starts_with_path_and_has_fields(caplog: pytest.LogCaptureFixture) -> None:
    PathLog("asyncrec.shards").warning("s3://b/100%", "%d records", 3, writer="w")
    [line] = caplog.records
    assert line.getMessage() == "s3://b/100%: 3 records"
    assert (vars(line)["path"], vars(line)["writer"]) == ("s3://b/100%", "w")
    assert (line.name, line.levelname, line.filename) == ("asyncrec.shards", "WARNING", "test_logging.py")


@pytest.mark.anyio
async def test_commit_log_names_shard_and_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "asyncrec"):
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            await writer.write(b"a record")
    [line] = [record for record in caplog.records if "committed" in record.message]
    fields = vars(line)
    assert fields["writer"] == writer.writer_id
    assert fields["path"] == str(tmp_path / "pages")
    assert fields["shard"] == f"pages-{writer.writer_id}-000000.tfrecord"
    assert (fields["records"], fields["bytes"]) == (1, 24)
