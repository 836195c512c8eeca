"""``asyncrec delete`` asks a person to confirm, requires --yes in scripts, and prints its receipt as JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from cli_data import Run


def count(run: Run) -> str:
    return run("count", "data/pages").ok().split()[-1]


def test_delete_removes_records_by_key_or_condition(run: Run, data: Path) -> None:
    result = run("delete", "data/pages", "--key", "key 1", "--key", "key 2", "--key", "none", "--yes").ok()
    assert "data/pages: 2 records deleted, in 1 shard of " in result
    assert "2 of 3 keys found" in result
    assert "out of reach: copies" in result
    assert run("cat", "data/pages", "--key", "key 1").code == 5
    (data / "keys").write_bytes(b"key 3\r\nkey 4\nkey 5")
    assert "3 records deleted" in run("delete", "data/pages", "--keys-from", str(data / "keys"), "--yes").ok()
    assert "1 record deleted" in run("delete", "data/pages", "--where", "text contains 29", "--yes").ok()
    assert count(run) == "24"


def test_dry_run_changes_nothing(run: Run, data: Path) -> None:
    before = sorted(data.rglob("*"))
    result = run("delete", "data/pages", "--key", "key 1", "--dry-run").ok()
    assert "1 record would be deleted, in 1 shard" in result
    assert "out of reach" not in result
    assert sorted(data.rglob("*")) == before


def test_receipt_is_json_without_keys(run: Run, data: Path) -> None:
    receipt = json.loads(run("delete", "data/pages", "--key", "key 1", "--yes", "--json").ok())
    assert (receipt["records"], receipt["keys"], receipt["keys_found"]) == (1, 1, 1)
    assert receipt["deletions"][0]["shards"] == [name for name in receipt["deletions"][0]["shards"] if "pages-" in name]
    assert len(receipt["objects"]) == 3
    assert receipt["unfinished"] == receipt["uncommitted"] == []
    assert "key 1" not in json.dumps(receipt)


def test_delete_requires_yes_option_outside_terminal(run: Run, data: Path) -> None:
    result = run("delete", "data/pages", "--key", "key 1")
    assert result.code == 2
    assert "add --yes" in result.err
    assert count(run) == "30"


@pytest.mark.parametrize(("answer", "left"), [("n\n", "30"), ("y\n", "29")])
def test_delete_asks_for_confirmation_in_terminal(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: str
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", Terminal(answer))
        result = run("delete", "data/pages", "--key", "key 1")
    assert result.code == 0
    assert "1 record would be deleted" in result.err
    assert "cannot be restored" in result.err
    assert ("nothing was deleted" in result.out) == (answer == "n\n")
    assert count(run) == left


def test_delete_without_matches_asks_no_confirmation(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert "0 records would be deleted" in run("delete", "data/pages", "--key", "none").ok()


def test_delete_rejects_invalid_input(run: Run, data: Path) -> None:
    (data / "keys").write_bytes(b"key 3\n\nkey 4\n")
    (data / "empty").write_bytes(b"")
    for arguments, code, message in (
        ([], 2, "nothing to delete was passed"),
        (["--keys-from", str(data / "keys")], 2, "line 2 is empty"),
        (["--keys-from", str(data / "empty")], 2, "no key was passed"),
        (["--keys-from", str(data / "nothing")], 2, "nothing: No such file"),
        (["--keys-from", str(data)], 2, "Is a directory"),
        (["--key", ""], 2, "a key is empty"),
        (["--key", "key 1", "--where", "label=1"], 2, "cannot be combined"),
        (["--where", ""], 2, "is not a condition"),
        (["--where", "nothing=1"], 2, "no feature"),
    ):
        result = run("delete", "data/pages", *arguments, "--yes")
        assert result.code == code, result
        assert message in result.err
    assert run("delete", "data/plain.tfrecord", "--key", "key 1", "--yes").code == 1
    assert count(run) == "30"
