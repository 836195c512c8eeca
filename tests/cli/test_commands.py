"""Each command on local files: its output, its exit codes, and how it handles bad input."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from cli_data import Run, example, no_rights
from mortal import dies

import asyncrec
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.segment import Segment, format_time
from asyncrec.cli._installed import COMMANDS
from asyncrec.plugins._manager import Plugins
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.tools._formats import Formats

# Parameter names and values in Python syntax.
PYTHON = re.compile(r"\b[a-z]+_[a-z_]+\b(?!\.tfrecord)|=(True|False|None)|\w='|\(\.\.\.")


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


# Bad input ------------------------------------------------------------------------------------------------------------

# The arguments of every command that reads a PATH.
READING: dict[str, list[str]] = {
    "info": ["PATH"],
    "head": ["PATH"],
    "cat": ["PATH"],
    "ls": ["PATH"],
    "tail": ["PATH"],
    "sample": ["PATH", "out/set"],
    "diff": ["PATH", "PATH"],
    "filter": ["PATH", "out/set", "--where", "label=1"],
    "merge": ["PATH", "PATH", "out/set"],
    "dedupe": ["PATH", "out/set"],
    "count": ["PATH"],
    "watch": ["PATH", "--once"],
    "schema": ["PATH", "--infer"],
    "verify": ["PATH"],
    "repair": ["PATH", "out.tfrecord"],
    "recover": ["PATH"],
    "index": ["PATH", "--force"],
    "forget-source": ["PATH", "topic/3"],
    "delete": ["PATH", "--key", "key 1", "--yes"],
    "compact": ["PATH"],
    "copy": ["PATH", "out/"],
    "reshard": ["PATH", "out/set"],
    "convert": ["PATH", "out.jsonl"],
    "from-csv": ["PATH", "out"],
    "from-folder": ["PATH", "out"],
}


def test_every_reading_command_is_covered_by_these_tests() -> None:
    assert set(COMMANDS) - set(READING) <= {"uploads", "doctor"}


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_flag_exits_with_2_and_suggests_help(run: Run, command: str) -> None:
    result = run(command, "--no-such-flag")
    assert result.code == 2
    assert "--no-such-flag" in result.err
    assert f"asyncrec {command} --help" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    assert f"Usage: asyncrec {command}" in run(command, "--help").ok()


@pytest.mark.parametrize("command", READING)
def test_missing_path_exits_with_3_and_is_named(run: Run, command: str, data: Path) -> None:
    result = run(command, *[each.replace("PATH", "data/nowhere/nothing") for each in READING[command]])
    assert result.code == 3, result
    assert "data/nowhere/nothing" in result.err
    assert not Path("out").exists() or not list(Path("out").rglob("*.tfrecord"))


@pytest.mark.parametrize("command", READING)
def test_missing_permissions_exit_as_storage_error(run: Run, command: str, data: Path) -> None:
    target = data / "mine"
    target.mkdir()
    name = "x.csv" if command == "from-csv" else "x.tfrecord"
    shutil.copy(data / "plain.tfrecord", target / name)
    Path("out").mkdir()
    path = target / name
    arguments = [each.replace("PATH", str(target if command == "from-folder" else path)) for each in READING[command]]
    run(command, *arguments)  # run once so that all imports are done: without permissions, importing might fail
    with no_rights(target):
        result = run(command, *arguments)
    assert result.code == 3, result
    assert "ermission" in result.err or "not allowed" in result.err or "refused" in result.err


@pytest.mark.parametrize(
    "command",
    [
        "tail", "sample", "diff", "merge", "dedupe", "head", "cat", "count", "info", "verify", "copy", "reshard",
        "convert", "repair", "index",
    ],
)  # fmt: skip
def test_damaged_file_exits_with_1(run: Run, command: str, damaged: Path) -> None:
    content = bytearray(damaged.read_bytes())
    content[2 * 23] ^= 1  # the length field: counting does not read the data
    damaged.write_bytes(content)
    result = run(command, *[each.replace("PATH", str(damaged)) for each in READING[command]])
    if command == "copy":  # it copies any bytes, and there is no checksum to compare
        assert result.code == 0
        return
    assert result.code == 1, result
    assert "data/damaged.tfrecord" in result.out + result.err
    assert "='" not in result.out + result.err, "the remedy is a command's, and not Python's"


def test_traceback_is_shown_with_debug_option(run: Run) -> None:
    result = run("info", "nowhere", "--debug")
    assert result.code == 3
    assert "Traceback (most recent call last)" in result.err
    assert "ObjectNotFoundError" in result.err


def test_internal_error_is_reported_as_bug(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> object:
        return {}["missing"]  # type: ignore[index]  # the fault

    monkeypatch.setattr("asyncrec.tools.info", broken)
    result = run("info", "data")
    assert result.code == 4
    assert "bug in asyncrec" in result.err


def test_misspelt_command_gets_suggestion(run: Run) -> None:
    result = run("verfy", "x")
    assert result.code == 2
    assert "verify" in result.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["info", "s4://bucket/x"], "no backend serves 's4'"),
        (["info", "data", "--storage-option", "novalue"], "KEY=VALUE"),
        (["info", "data", "--storage-option", "nosuch=1"], "nosuch"),
        (["cat", "data/pages", "--record", "3", "--key", "x"], "one record"),
        (["cat", "data/pages", "--where", "label"], "FEATURE=VALUE"),
        (["cat", "data/pages", "--record", "99"], "no record 99"),
        (
            ["watch", "data/pages", "--once", "--by", "nosuch"],
            "no feature 'nosuch'; the features are emb, label, tags, text",
        ),
        (["from-csv", "data/table.csv", "out", "--label", "nosuch"], "there is no column 'nosuch'; the columns are"),
        (["from-csv", "data/table.csv", "out", "--file", "nosuch"], "there is no column 'nosuch'; the columns are"),
        (["head", "data/pages", "--format", "xml"], "xml"),
        (["verify", "data/pages", "--adopt", "--delete"], "cannot be combined"),
        (["verify", "data/pages", "--older-than", "soon"], "soon"),
        (["reshard", "data/pages", "out/x", "-n", "2", "--max-shard-bytes", "1M"], "--num-shards"),
        (["reshard", "data/pages", "out/x", "--max-shard-bytes", "many"], "many"),
        (
            ["reshard", "data/pages", "out/x", "--compression", "zstd"],
            "'zstd' is not one of 'keep', 'none', 'gzip', 'zlib'",
        ),
        (["index", "data/pages", "--layout", "mine"], "mine"),
        (["convert", "data/plain.tfrecord", "out/set"], "reshard or copy"),
        (["uploads", "data", "--older-than", "x"], "x"),
        (["cat", "data/pages", "--where", "nosuch=1"], "no feature 'nosuch'; the features are emb, label, tags"),
        (["cat", "data/pages", "--where", "label=abc"], "holds whole numbers, but 'abc' cannot be parsed as one"),
        (["cat", "data/pages", "--feature", "nosuch"], "no feature 'nosuch'; the features are emb, label, tags"),
        (["cat", "data/pages-*.tfrecord", "--feature", "nosuch"], "no feature 'nosuch'; the features are emb, label"),
        (["cat", "data/plain.tfrecord", "--where", "a=1"], "are not Examples"),
        (["filter", "data/pages", "out/x"], "no condition was passed"),
        (["filter", "data/pages", "out/x", "--where", "label contains 1"], "works only on text"),
        (["sample", "data/pages", "-n", "3", "--fraction", "0.5"], "cannot be combined"),
        (["sample", "data/pages", "--fraction", "2"], "--fraction"),
        (["merge", "data/pages"], "SOURCE... TARGET"),
        (["dedupe", "data/pages", "out/x", "--by", "x", "--by-key"], "cannot be combined"),
        (["diff", "data/pages", "data/pages", "--by", "nosuch"], "no feature 'nosuch'"),
        (["tail", "data/pages", "--interval", "soon"], "soon"),
        (["convert", "data/pages", "out.xyz"], "the suffix does not name a format"),
        (["convert", "data/plain.tfrecord", "-"], "reshard or copy"),
        (["reshard", "data/pages", "-"], "cannot write to standard output"),
        (["copy", "data/pages", "-"], "cannot write to standard output"),
        (["repair", "data/plain.tfrecord", "-"], "cannot write to standard output"),
        (["from-csv", "data/table.csv", "-"], "cannot write to standard output"),
        (["from-folder", "data", "-"], "cannot write to standard output"),
        (["from-folder", "data", "out", "--ratios", "much"], "much"),
        (["from-folder", "data", "out", "--ratios", "0.5,0.6"], "--ratios [0.5, 0.6] sum to 1.1; they must sum to 1"),
        (["from-folder", "data", "out", "--ratios", "2"], "--ratios 2.0: pass one ratio between 0 and 1"),
    ],
)
def test_invalid_arguments_exit_as_wrong_usage(run: Run, data: Path, argv: list[str], said: str) -> None:
    (data / "table.csv").write_text("kind,n\na,1\n")
    result = run(*argv)
    assert result.code == 2, result
    assert said in result.err
    assert not PYTHON.search(result.err), "in the words of the command line"


def test_error_hides_storage_option_value(run: Run) -> None:
    result = run("info", "x", "--storage-option", "hunter2")
    assert "hunter2" not in result.out + result.err


# Looking --------------------------------------------------------------------------------------------------------------


def test_info_describes_data_set(run: Run, data: Path) -> None:
    out = run("info", "data/pages").ok()
    for said in ("data set", "30", "Examples", "1: 1 closed", "label", "float32", "made"):
        assert said in out
    report = json.loads(run("info", "data/pages", "--json").ok())
    assert (report["kind"], report["shards"], report["records"]) == ("data set", 3, 30)
    assert report["datasets"][0]["writers"][0]["closed"] is True


def test_info_shows_how_far_sources_were_read(run: Run, data: Path) -> None:
    assert "position" not in run("info", "data/pages").ok()
    segment = Segment(writer="w1", time=format_time(1_700_000_000), closed=True, progress={"topic/3": (2, 917)})
    (data / "_manifest" / "pages" / "w1-000001.jsonl").write_bytes(segment.encode())
    assert re.search(r"topic/3 +917", run("info", "data/pages").ok())
    assert json.loads(run("info", "data/pages", "--json").ok())["datasets"][0]["progress"] == {"topic/3": 917}


def test_info_describes_folder_and_single_file(run: Run, data: Path) -> None:
    report = json.loads(run("info", "data", "--json").ok())
    assert (report["kind"], report["shards"], report["records"]) == ("folder", 7, 65)
    assert report["compression"] == {"": 4, "GZIP": 3}
    out = run("info", "data/plain.tfrecord").ok()
    assert "not Examples" in out
    assert "records" in out


def test_info_reports_orphans(run: Run, data: Path) -> None:
    shutil.copy(next(data.glob("pages-*-000000.tfrecord")), data / "pages-lost-000000.tfrecord")
    assert "data/pages-lost-000000.tfrecord" in run("info", "data/pages").ok()


def test_head_shows_features_without_control_characters(run: Run, data: Path) -> None:
    out = run("head", "data/pages", "-n", "2").ok()
    assert out.count("record ") == 2
    assert "float32[4]  0.0 0.1 0.2 0.3" in out
    for shape in ("auto", "json", "hex", "text", "example"):
        out = run("head", "data/pages", "--format", shape).ok()
        assert not [character for character in out if character != "\n" and not character.isprintable()]


def test_head_shows_features_in_schema_order(run: Run, tmp_path: Path) -> None:
    schema = asyncrec.Schema({"url": asyncrec.FixedLen((), "str"), "date": asyncrec.FixedLen((), "str", default="")})

    async def write() -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=schema) as writer:
            await writer.write({"url": "http://localhost/", "date": "2026-11-24"})
            await writer.write({"url": "http://localhost/new"})

    anyio.run(write)
    first, second = run("head", tmp_path / "pages").ok().split("record ")[1:]
    assert [line.split()[0] for line in first.splitlines()[1:]] == ["url", "date"]
    assert "date" not in second
    assert "1 empty feature not shown" in second
    assert '""' in run("head", tmp_path / "pages", "--format", "example").ok()
    assert '""' in run("head", tmp_path / "pages", "--feature", "date").ok()


def test_control_characters_in_names_and_features_are_escaped(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2Jb.tfrecord"
    record = asyncrec.encode_example({"x\x1b]0;t\x07": "\x9b31m\u202ehidden\x7f", "n": 1})
    anyio.run(asyncrec.write_records, path, [record])
    for argv in (
        ["info", path],
        ["head", path],
        ["cat", path, "--json"],
        ["verify", path, "--json"],
        ["count", path, "--shards"],
        ["schema", path],
        ["info", tmp_path / "no\x1b[2Jthing"],
    ):
        result = run(*argv)
        said = result.out + result.err
        assert not [each for each in said if each != "\n" and not each.isprintable()], argv


def test_cat_chooses_by_number_key_and_value(run: Run, data: Path) -> None:
    assert lines(run("cat", "data/pages", "--json", "--record", "17").ok())[0]["text"].startswith("text 17 ")
    assert lines(run("cat", "data/pages", "--json", "--record", "-1").ok())[0]["text"].startswith("text 29 ")
    assert lines(run("cat", "data/zipped", "--json", "--key", "key 8").ok())[0]["text"].startswith("text 8 ")
    chosen = lines(run("cat", "data/zipped", "--json", "--where", "label=2", "--where", "tags=b", "--limit", "4").ok())
    assert [each["label"] for each in chosen] == [2, 2, 2, 2]
    assert lines(run("cat", "data/pages", "--json", "--feature", "label", "--limit", "2").ok()) == [
        {"label": 0},
        {"label": 1},
    ]
    assert len(lines(run("cat", "data/pages", "--json", "--where", "label!=0").ok())) == 20
    assert run("cat", "data/pages", "--limit", "0").ok() == ""


def test_cat_raw_format_prints_bytes_unchanged(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asyncrec.cli", "cat", "data/plain.tfrecord", "--format", "raw", "--record", "3"],
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"hello 3"


def test_closed_pipe_ends_command_without_error(tmp_path: Path) -> None:
    anyio.run(asyncrec.write_records, tmp_path / "many.tfrecord", [b"x" * 1000] * 2000)  # more than a pipe can buffer
    program = f"{sys.executable} -m asyncrec.cli cat {tmp_path}/many.tfrecord --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert done.returncode == 0


def test_count_prints_number_of_records(run: Run, data: Path) -> None:
    assert run("count", "data/pages").ok() == "30\n"
    assert run("count", "data/*.tfrecord").ok() == "65\n"
    assert "65 in total" in run("count", "data", "--shards").ok()
    assert json.loads(run("count", "data/plain.tfrecord", "--json").ok())["records"] == 5


def test_count_groups_records_by_feature(run: Run, data: Path) -> None:
    lines = run("count", "data/pages", "--by", "label", "--where", "label<2").ok().splitlines()
    assert [line.split() for line in lines] == [["label", "records"], ["0", "10"], ["1", "10"], ["20", "in", "total"]]
    assert json.loads(run("count", "data/pages", "--by", "label", "--json").ok())["by"][0] == {
        "value": 0,
        "records": 10,
    }
    assert run("count", "data/pages", "--where", "label=2").ok() == "10\n"
    assert run("count", "data/pages", "--by", "nothing").code == 2


def test_count_shows_each_value_differently(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values: list[object] = [1, 1.0, b"1", b"1.0", 1000, b"1,000", 0.001, 0.002, [1, 2], b"[1, 2]", b"\xff", b"\\xff"]
    values += [b"", b" ", b"a", b"a ", b"a\n", b"a\\n", b'"a"', b"(absent)", float("nan"), b"nan", b'{"$float": "nan"}']
    records = [asyncrec.encode_example({"a": value}) for value in values]
    asyncrec.blocking.write_records("x.tfrecord", [*records, asyncrec.encode_example({"b": 1})])
    _, *rows, _ = run("count", "x.tfrecord", "--by", "a").ok().splitlines()
    shown = [row.rsplit(maxsplit=1)[0] for row in rows]
    assert len(set(shown)) == len(values) + 1
    assert {"a", "nan", '"1"', "1", "1.0", '"a "', "(absent)", '"(absent)"'} <= set(shown)


def test_schema_command_shows_stored_or_inferred_schema(run: Run, data: Path) -> None:
    assert "from the manifest" in run("schema", "data/pages").ok()
    inferred = json.loads(run("schema", "data/pages", "--infer", "--json").ok())
    assert asyncrec.Schema.from_json(inferred).decode(example(3))["label"] == 0
    assert "inferred from 7 records" in run("schema", "data/pages", "--infer", "-n", "7").ok()
    assert run("schema", "data/plain.tfrecord").code == 1


# Checking -------------------------------------------------------------------------------------------------------------


def test_verify_reports_damage_and_position(run: Run, data: Path, damaged: Path) -> None:
    assert "every checksum in data/pages matches" in run("verify", "data/pages").ok()
    result = run("verify", "data")
    assert result.code == 1
    assert "data/damaged.tfrecord: damaged: record 2, offset 46" in result.out
    assert "DAMAGED: 1 of 8 shards" in result.out
    report = json.loads(run("verify", "data", "--json").out)
    assert report["ok"] is False
    assert [shard["path"] for shard in report["shards"] if shard["problems"]] == ["data/damaged.tfrecord"]


def test_verify_adopts_or_deletes_orphans(run: Run, data: Path) -> None:
    lost = data / "pages-lost-000000.tfrecord"
    shutil.copy(next(data.glob("pages-*-000001.tfrecord")), lost)
    assert "may be about to commit it" in run("verify", "data/pages", "--delete").ok()
    assert lost.exists()
    os.utime(lost, (0, 0))
    assert "--adopt adds it" in run("verify", "data/pages").ok()
    assert "adopted" in run("verify", "data/pages", "--adopt").ok()
    assert run("count", "data/pages").ok() == "40\n"
    other = data / "pages-lost-000001.tfrecord"
    shutil.copy(lost, other)
    os.utime(other, (0, 0))
    assert "deleted" in run("verify", "data/pages", "--delete").ok()
    assert not other.exists()
    assert lost.exists()


def test_verify_suggests_text_file_is_not_tfrecord(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` also reports a text file as damaged, and logs nothing besides its output."""
    monkeypatch.chdir(tmp_path)
    Path("rows.tfrecord").write_text("id,label\n" * 100)
    result = run("verify", "rows.tfrecord")
    assert result.code == 1
    assert "check that this is a TFRecord file and that its compression is correct" in result.out
    assert result.err == ""


def test_count_by_missing_feature_explains_why(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asyncrec.blocking.write_records("x.tfrecord", [b"text", b"more"])
    result = run("count", "x.tfrecord", "--by", "label")
    assert result.code == 2
    assert "there is no feature 'label', because the records are empty or are not Examples" in result.err


def test_repair_saves_intact_records(run: Run, data: Path, damaged: Path) -> None:
    result = run("repair", damaged, "data/saved.tfrecord")
    assert result.code == 1
    assert "4 intact records" in result.out
    assert run("count", "data/saved.tfrecord").ok() == "4\n"
    again = run("repair", damaged, "data/saved.tfrecord")
    assert again.code == 3
    assert json.loads(run("repair", damaged, "data/saved.tfrecord", "--overwrite", "--json").out)["records"] == 4
    assert run("repair", "data/plain.tfrecord", "data/same.tfrecord").code == 0


def test_recover_reports_nothing_for_intact_data_set(run: Run, data: Path) -> None:
    assert "nothing to recover" in run("recover", "data/pages").ok()
    assert json.loads(run("recover", "data/pages", "--json").ok())["records"] == 0


def test_recover_publishes_records_of_killed_writer(run: Run, data: Path) -> None:
    program = """
import os, anyio, asyncrec
async def main():
    async with asyncrec.open_sharded_writer("data/killed") as writer:
        for number in range(7):
            await writer.write(b"record %d" % number)
        await writer.flush()
        os._exit(9)
anyio.run(main)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert "recovered 7 records" in run("recover", "data/killed").ok()
    assert run("count", "data/killed").ok() == "7\n"


def killed(options: str = "", *, writer_id: str = "dead") -> None:
    """Start a writer to ``data/killed`` that is killed after a flush."""
    program = f"""
import os, anyio, asyncrec
async def main():
    async with asyncrec.open_sharded_writer("data/killed", writer_id="{writer_id}", {options}) as writer:
        await writer.write(b"a record")
        await writer.flush(require="spooled")
        os._exit(9)
anyio.run(main)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9


def test_recover_prints_target_of_spooled_shards(run: Run, data: Path) -> None:
    killed("spool='spool'")
    target = str(Path("data/killed").absolute())
    assert f"published to {target}\n" in run("recover", "spool", "--to", "data/killed").ok()
    killed("spool='spool'", writer_id="another")
    assert json.loads(run("recover", "spool", "--to", target, "--json").ok())["targets"] == [target]
    assert run("count", "data/killed").ok() == "2\n"


def test_info_reports_uncounted_records_of_dead_writers_with_remedy(run: Run, data: Path) -> None:
    killed()
    shown = run("info", "data/killed").ok()
    assert "records  0\n" in shown
    assert "To commit them, open a writer there, or run 'asyncrec recover" in shown
    shutil.rmtree(data)
    killed("num_shards=1")
    assert "To commit them, run 'asyncrec recover" in run("info", "data/killed").ok()


def test_info_and_verify_name_spool_of_dead_writer(run: Run, data: Path) -> None:
    killed("spool='spool'")
    shown = run("info", "data/killed").ok()
    assert "Commit them with 'asyncrec recover SPOOL --to data/killed'" in shown
    assert "open a writer there" not in shown
    assert "'asyncrec recover SPOOL --to data/killed'" in run("watch", "--once", "data/killed").ok()
    verified = run("verify", "spool").ok()
    assert "ok:" not in verified
    assert "nothing was checked: this is a spool" in verified
    assert "to upload records left by dead writers, run 'asyncrec recover spool --to ...'" in verified
    assert "To see its writers, run 'asyncrec watch spool'" in run("info", "spool").ok()
    assert json.loads(run("verify", "spool", "--json").ok())["spool"] is True
    assert json.loads(run("info", "data", "--json").ok())["spool"] is False


def test_recover_abandons_named_job(run: Run, data: Path) -> None:
    killed()
    assert run("recover", "data/killed", "--abandon", "another").code == 3
    assert list(data.glob("killed-*.tfrecord")) == [], "nothing was done"
    shutil.rmtree(data)
    killed()
    report = json.loads(run("recover", "data/killed", "--abandon", "dead", "--json").ok())
    assert (report["abandoned"], report["records"], report["unfinished"]) == (["dead"], 0, [])
    assert list(data.glob("*.tfrecord")) == list(data.glob(".*")) == []
    assert "nothing to recover" in run("recover", "data/killed").ok(), "it may be run again"


@pytest.mark.parametrize("told", ["--abandon", "--dead"])
@pytest.mark.parametrize("spool", [False, True])
def test_recover_names_unreachable_job_and_abandons_on_request(run: Run, data: Path, spool: bool, told: str) -> None:
    note = JobHeader(
        kind="rolling", name="pages", writer="far", url="s3://x/pages", spool=spool, metadata={},
        host="elsewhere", pid=17, since="2026-01-01T00:00:00+00:00", life="none",
    )  # fmt: skip
    mark = data / "_manifest/pages/far-000000.jsonl"
    mark.write_bytes(note.encode())
    said = run("recover", "data/pages").ok()
    assert "job far (rolling; process 17 on elsewhere, started " in said
    assert ("Its records are in a spool on that machine" in said) == spool
    assert ("--abandon far" in said) == (not spool)
    assert "--dead far" in said
    (job,) = json.loads(run("recover", "data/pages", "--json").ok())["unfinished"]
    assert job.pop("age") > 0
    assert job == {
        "id": "far", "kind": "rolling", "host": "elsewhere", "pid": 17, "since": note.since, "spool": spool
    }  # fmt: skip
    assert run("recover", "data/pages", told, "near").code == 3
    assert "job far was abandoned" in run("recover", "data/pages", told, "far").ok()
    assert not mark.exists()
    assert run("count", "data/pages").ok() == "30\n"


def test_index_is_created_in_every_layout(run: Run, data: Path) -> None:
    assert "1 created, 6 already existed" in run("index", "data").ok()
    assert "0 created, 7 already existed" in run("index", "data").ok()
    assert "1 created" in run("index", "data/plain.tfrecord", "--layout", "tfrecord").ok()
    assert (data / "plain.tfindex").read_text() == "".join(f"{23 * n} 23\n" for n in range(5))
    assert "1 created" in run("index", "data/plain.tfrecord", "--layout", "dali").ok()
    assert (data / "plain.tfrecord.idx").read_bytes() == (data / "plain.tfindex").read_bytes()
    refused = run("index", "data/zipped", "--layout", "dali")
    assert refused.code == 2
    assert "compressed" in refused.out


def test_uploads_lists_and_removes_old_files(run: Run, data: Path) -> None:
    partial = data / ".pages.0123456789abcdef.partial"
    partial.write_bytes(b"half")
    assert "1 unfinished, 0 removed" in run("uploads", "data", "--remove").ok()
    os.utime(partial, (0, 0))
    report = json.loads(run("uploads", "data/pages", "--json").ok())
    assert [each["path"] for each in report["uploads"]] == ["data/.pages.0123456789abcdef.partial"]
    assert "1 unfinished, 1 removed" in run("uploads", "data", "--remove").ok()
    assert not partial.exists()


def test_uploads_keeps_files_of_jobs(run: Run, data: Path) -> None:
    killed()
    for path in data.rglob(".killed*"):
        os.utime(path, (0, 0))
    said = run("uploads", "data", "--remove").ok()
    assert "3 unfinished, 0 removed, 3 kept" in said
    assert said.count("kept: it belongs to a job; if the job is dead, run 'asyncrec recover'") == 3
    assert "recovered 1 record in 1 shard; removed " in run("recover", "data/killed").ok()
    assert "\n1 shard, 1 record; 0 older objects deleted\n" in run("compact", "data/killed").ok()


def test_doctor_reports_healthy_storage(run: Run, data: Path) -> None:
    out = run("doctor", "data").ok()
    assert "FAILED" not in out
    assert "exclusive creation" in out
    report = json.loads(run("doctor", "data", "--json").ok())
    assert report["ok"] is True
    assert "asyncrec" in report["installed"]
    assert not list(data.glob(".asyncrec-doctor*"))


def test_doctor_without_path_lists_installation_and_writes_no_files(run: Run, data: Path) -> None:
    before = sorted(data.parent.rglob("*"))
    out = run("doctor").ok()
    assert "inner loops" in out
    assert "check" not in out
    assert sorted(data.parent.rglob("*")) == before


def test_doctor_names_failed_checks(run: Run, data: Path) -> None:
    run("doctor", "data")
    with no_rights(data):
        result = run("doctor", "data")
    assert result.code == 3
    assert "write" in result.out
    assert "FAILED" in result.out


# Making ---------------------------------------------------------------------------------------------------------------


def test_copy_handles_data_sets_folders_and_files(run: Run, data: Path) -> None:
    assert "9 objects copied" in run("copy", "data/pages", "out/sheets").ok()
    assert "every checksum in out/sheets matches" in run("verify", "out/sheets").ok()
    assert lines(run("cat", "out/sheets", "--key", "key 5", "--json").ok())[0]["label"] == 2
    again = run("copy", "data/pages", "out/sheets").ok()
    assert "0 objects copied" in again
    assert "9 existing objects have the right size" in again
    assert "asyncrec verify out/sheets" in again
    report = json.loads(run("copy", "data", "all", "--json").ok())
    assert len(report["copied"]) == 19
    assert run("copy", "data/plain.tfrecord", "out/").code == 0
    assert Path("out/plain.tfrecord").read_bytes() == (data / "plain.tfrecord").read_bytes()


def test_copy_requires_overwrite_to_replace_file(run: Run, data: Path, damaged: Path) -> None:
    result = run("copy", damaged, "data/plain.tfrecord")
    assert result.code == 3
    assert "--overwrite" in result.err
    run("copy", damaged, "data/plain.tfrecord", "--overwrite").ok()
    assert (data / "plain.tfrecord").read_bytes() == damaged.read_bytes()


def test_reshard_splits_by_number_size_or_group(run: Run, data: Path) -> None:
    assert "30 records in 4 shards" in run("reshard", "data/pages", "out/four", "-n", "4").ok()
    assert sorted(path.name for path in Path("out").glob("four-*"))[0] == "four-00000-of-00004.tfrecord"
    report = json.loads(
        run("reshard", "data/pages", "out/grouped", "--group-by", "label", "--compression", "gzip", "--json").ok()
    )
    assert report["records"] == 30
    labels = [each["label"] for each in lines(run("cat", "out/grouped", "--json").ok())]
    assert sorted(labels) == sorted(range(3)) * 10 or len({tuple(labels[n : n + 10]) for n in (0, 10, 20)}) == 3
    assert "every checksum in out matches" in run("verify", "out").ok()
    assert run("reshard", "data/pages", "out/four").code == 3
    shard = next(Path("data").glob("pages-*.tfrecord"))
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    saved = run("reshard", "data/pages", "out/saved", "--on-corrupt", "skip")
    assert saved.code == 1
    assert f"{shard}: damaged: 1 record lost, " in saved.out
    assert "out/saved: 29 records" in saved.out
    assert run("reshard", "data/pages", "out/no", "--on-corrupt", "skip", "-n", "3").code == 2
    nobody = run("reshard", "data/pages", "out/x", "--group-by", "nobody")
    assert nobody.code == 2
    assert "no feature 'nobody'; the features are emb, label, tags, text" in nobody.err


def test_convert_round_trips_through_json_lines_and_parquet(run: Run, data: Path) -> None:
    before = lines(run("cat", "data/pages", "--json").ok())
    for name in ("out.jsonl", "out.jsonl.gz", "out.parquet"):
        assert "30 records" in run("convert", "data/pages", name).ok()
        assert "30 records from 1 file" in run("convert", name, f"back/{name.replace('.', '_')}").ok()
        after = lines(run("cat", f"back/{name.replace('.', '_')}", "--json").ok())
        assert [(each["label"], each["text"], each["emb"]) for each in after] == [
            (each["label"], each["text"], each["emb"]) for each in before
        ]
    assert "0 records from 0 files, 1 already converted" in run("convert", "out.jsonl", "back/out_jsonl").ok()


def test_convert_skips_and_reports_bad_parts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text('{"a": 1}\nno json\n{"a": {"b": 2}}\n\n{"a": 3}\n')
    result = run("convert", "bad.jsonl", "out/set")
    assert result.code == 1
    assert "bad.jsonl: line 2: skipped" in result.out
    assert "bad.jsonl: line 3: skipped" in result.out
    assert "2 records from 1 file" in result.out
    again = run("convert", "bad.jsonl", "out/set")
    assert again.code == 1
    assert "bad.jsonl: 2 invalid parts were skipped when this file was first converted" in again.out
    Path("bad.jsonl").write_text('{"a": 1}\n')
    changed = run("convert", "bad.jsonl", "out/set")
    assert changed.code == 1
    assert "bad.jsonl has changed since it was converted into out/set" in changed.err


@pytest.mark.parametrize(("source", "target"), [("data/pages", "out.parquet"), ("x.warc.gz", "out/set")])
def test_convert_names_missing_plugin(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    monkeypatch.setenv("ASYNCREC_DISABLE_PLUGINS", "formats")
    monkeypatch.setattr("asyncrec.tools._convert.FORMATS", Formats(Plugins()))
    result = run("convert", source, target)
    assert result.code == 2
    assert "pip install asyncrec-formats" in result.err
    assert "ASYNCREC_DISABLE_PLUGINS leaves out: formats" in result.err


def test_from_csv_and_from_folder_write_same_examples(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = io.StringIO()
    writer = csv.writer(rows)
    writer.writerow(["picture", "kind", "weight", "count"])
    for number in range(10):
        for kind in ("cat", "dog"):
            file = tmp_path / "pictures" / kind / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"%s %d" % (kind.encode(), number))
            writer.writerow([f"pictures/{kind}/{number}.png", kind, number / 2, number])
    Path("table.csv").write_text(rows.getvalue())
    out = run("from-csv", "table.csv", "one", "--label", "kind", "--file", "picture", "--ratios", "0.6,0.2,0.2").ok()
    assert "labels: 0 cat, 1 dog" in out
    assert "features: count (int64), kind (int64), picture (bytes), weight (float32)" in out
    record = lines(run("cat", "one/test", "--json").ok())[0]
    assert record["picture"].split()[0] == ["cat", "dog"][record["kind"]]
    assert record["weight"] == record["count"] / 2
    assert "16" in run("from-folder", "pictures", "two").ok()
    assert json.loads(run("info", "two/eval", "--json").ok())["datasets"][0]["metadata"]["labels"] == ["cat", "dog"]
    Path("slip.csv").write_text("n\n1\n2\nx\n3\n")
    assert run("from-csv", "slip.csv", "slip", "--ratios", "0.5").ok().endswith("n (str)\nn is text: line 4 has 'x'\n")
    run("from-csv", "table.csv", "keyed", "--label", "kind", "--key", "picture").ok()
    found = [run("cat", f"keyed/{split}", "--key", "pictures/cat/3.png") for split in ("train", "eval")]
    assert sorted(each.code == 0 for each in found) == [False, True]
    wrong = run("from-csv", "table.csv", "three", "--label", "species")
    assert wrong.code == 2
    assert "species" in wrong.err


def test_library_warnings_are_printed_without_traceback(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def warns(path: str, **options: object) -> object:
        logging.getLogger("asyncrec.storage").warning("reading %s: attempt 2 of 10 failed", "x\x1b[1m")
        raise asyncrec.errors.TransientStorageError("given up")

    monkeypatch.setattr("asyncrec.tools.count", warns)
    result = run("count", "data")
    assert result.code == 3
    assert result.err == "asyncrec: reading x\\x1b[1m: attempt 2 of 10 failed\nasyncrec: given up\n"


def test_recover_of_folder_handles_every_data_set(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        anyio.run(dies, LocalStorage(tmp_path), name)
    assert "nothing to recover" in run("recover", tmp_path).ok()
    assert [path.name for path in tmp_path.glob(".*.partial")] == []


def test_diff_and_dedupe_name_features(run: Run, data: Path) -> None:
    run("dedupe", data / "pages", "new/pages", "--by", "label", "--keep", "newest-by=text").ok()
    said = run("diff", data / "pages", "new/pages", "--by", "label", "--ignore", "text")
    assert said.code == 1
    (changed,) = re.findall(r"changed: 3 records: (.*)", said.out)
    assert [part.split()[-1] for part in changed.split("; ")] == ["0", "1", "2"], "values of the feature"
