"""The recrawling example, run as by a user, on a site whose pages change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from site_server import Answer, SiteServer

from asyncrec import blocking

RECRAWL = Path(__file__).parents[2] / "examples" / "recrawl.py"
PATIENCE = 60


def recrawl(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(RECRAWL), *options]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(RECRAWL.parent)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def site_of(count: int, *, changed: int = 0) -> dict[str, Answer]:
    """Return pages of which the first few have changed; pages with odd numbers have an ETag."""
    answers: dict[str, Answer] = {}
    for number in range(count):
        body = b"<p>%d" % number * 100 + (b"new" if number < changed else b"")
        headers = {"Content-Type": "text/html", "Content-Length": str(len(body))}
        if number % 2:
            headers["ETag"] = f'"{hash(body)}"'
        answers[f"/{number}"] = (200, headers, body)
    return answers


def versions(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return all versions as stored, and with their bodies."""
    with blocking.open_dataset(path) as dataset:
        found = sorted(dataset.examples(), key=lambda page: (page["url"], page["date"]))
        return found, blocking.resolve(dataset, found)


def test_second_crawl_stores_changed_pages(tmp_path: Path) -> None:
    answers = site_of(20)
    with SiteServer(answers) as server:
        (tmp_path / "urls.txt").write_text("\n".join(f"{server.url}{number}" for number in range(21)))
        first = recrawl(tmp_path, "--urls", "urls.txt", "--to", "pages")
        assert (first.returncode, first.stderr) == (0, "")
        assert first.stdout.startswith("21 stored\n")
        answers |= {**site_of(20, changed=4), "/5": (503, {"Content-Length": "0"}, b"")}
        second = recrawl(tmp_path, "--urls", "urls.txt", "--to", "pages")
        assert (second.returncode, second.stderr) == (0, "")
        assert second.stdout.startswith("5 stored, 1 temporary, 15 unchanged\n"), "a 404 without a body is stored again"
    stored, whole = versions(tmp_path / "pages")
    kinds = Counter((page["type"], page["status"]) for page in stored)
    assert kinds == {("response", 200): 24, ("response", 404): 2, ("revisit", 304): 7, ("revisit", 200): 8}
    assert [page["content"] for page in whole if page["url"].endswith("/7")] == [answers["/7"][2]] * 2
    assert {page["status"] for page in whole} == {200, 404}


@pytest.mark.slow
def test_crawl_without_urls_uses_standard_library(tmp_path: Path) -> None:
    first, second = (recrawl(tmp_path) for _ in range(2))
    assert (first.returncode, first.stderr, second.returncode, second.stderr) == (0, "", 0, "")
    assert [each.stdout.split("\n")[0].split()[1] for each in (first, second)] == ["stored", "unchanged"]
    assert first.stdout.split("\n")[2] == second.stdout.split("\n")[2]
    records = [page["content"] for page in versions(tmp_path / "demo-data" / "recrawled")[1]]
    assert all(records)


def test_missing_url_file_is_reported_without_traceback(tmp_path: Path) -> None:
    done = recrawl(tmp_path, "--urls", "none.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert "none.txt" in done.stderr
    assert "Traceback" not in done.stderr
