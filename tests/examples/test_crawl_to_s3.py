"""The crawler configured by environment variables, run as in a container, with a store on this machine."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from crawl_to_s3 import Settings
from site_server import Answer, SiteServer

import asyncrec
import asyncrec.tools
from asyncrec.pages import PAGE

CRAWL_TO_S3 = Path(__file__).parents[2] / "examples" / "crawl_to_s3.py"
COMMAND = [sys.executable, str(CRAWL_TO_S3)]
PATIENCE = 60  # in seconds, to detect a hang; a run takes about two


def linked(pages: int, size: int = 100) -> dict[str, Answer]:
    """Return a site with a listing that links to this many pages."""
    html = {"Content-Type": "text/html"}
    listing = "".join(f'<a href="/p/{page}">{page}</a>' for page in range(pages))
    return {"/": (200, html, listing.encode())} | {
        f"/p/{page}": (200, html, random.Random(page).randbytes(size)) for page in range(pages)
    }


def settings(server: SiteServer, to: str, **more: object) -> dict[str, str]:
    given = {"start_url": server.url, "to": to, "delay": 0} | more
    return {f"CRAWL_{name.upper()}": str(value) for name, value in given.items()}


def bodies_in(dataset: str) -> dict[str, bytes]:
    """Return the bodies by URL; check that all are intact, no URL is repeated, and no unfinished upload is left."""
    return anyio.run(_bodies_in, dataset)


async def _bodies_in(dataset: str) -> dict[str, bytes]:
    bodies: dict[str, bytes] = {}
    for path in await asyncrec.list_shards(await asyncrec.read_manifest(dataset)):
        for record in await asyncrec.read_records(path):
            page = PAGE.decode(record)
            assert page["url"] not in bodies
            bodies[page["url"]] = page["content"]
    folder = dataset.rpartition("/")[0]
    assert (await asyncrec.tools.uploads(folder)).found == []
    return bodies


@pytest.mark.slow
def test_second_run_adds_only_new_pages(s3: dict[str, str]) -> None:
    site = linked(30, size=200_000)
    with SiteServer(site) as server:
        environment = s3 | settings(server, "s3://crawl/first/pages", shard_bytes=1 << 20)
        first = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert first.returncode == 0, first.stderr
        assert "31 records in" in first.stderr
        assert first.stderr.count("committed pages-") > 1, "the shards roll"
        found = bodies_in("s3://crawl/first/pages")
        assert found == {server.url + path[1:]: body for path, (_, _, body) in site.items()}

        again = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert again.returncode == 0, again.stderr
        assert bodies_in("s3://crawl/first/pages") == found


@pytest.mark.slow
def test_next_run_follows_links_of_stored_pages(s3: dict[str, str]) -> None:
    html = {"Content-Type": "text/html"}
    names = ["/", *(f"/p/{page}" for page in range(20))]  # each page is linked only from the one before
    site = {name: (200, html, f'<a href="{to}">'.encode()) for name, to in zip(names, [*names[1:], "/"], strict=True)}
    with SiteServer(site) as server:
        for pages, there in ((8, 8), (1000, 21)):
            run = subprocess.run(
                COMMAND,
                env=s3 | settings(server, "s3://crawl/chained/pages", pages=pages),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert run.returncode == 0, run.stderr
            assert len(bodies_in("s3://crawl/chained/pages")) == there


@pytest.mark.slow
def test_sigterm_commits_fetched_pages(s3: dict[str, str]) -> None:
    with SiteServer(linked(300), busy_after=20) as server:
        environment = s3 | settings(server, "s3://crawl/stopped/pages", delay=0.01)
        with subprocess.Popen(COMMAND, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert server.busy.wait(PATIENCE)
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + signal.SIGTERM, said
        found = bodies_in("s3://crawl/stopped/pages")
        assert 1 <= len(found) < 300
        assert f"{len(found)} records in" in said


@pytest.mark.slow
def test_killed_run_with_spool_restarts_and_empties_spool(s3: dict[str, str], tmp_path: Path) -> None:
    dataset, spool = "s3://crawl/spooled/pages", tmp_path / "spool"
    with SiteServer(linked(300, size=20_000), busy_after=150) as server:
        environment = s3 | settings(server, dataset, delay=0.005, spool=spool)
        with subprocess.Popen(COMMAND, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert server.busy.wait(PATIENCE)
            process.kill()
            process.communicate(timeout=PATIENCE)
        environment |= settings(server, dataset, pages=1000, spool=spool)
        again = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert again.returncode == 0, again.stderr
    assert len(bodies_in(dataset)) == 301
    assert not [path for path in spool.rglob("*.tfrecord*") if path.is_file()], "nothing waits any more"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"CRAWL_TO": "s3://crawl/x/pages"}, "CRAWL_START_URL is not set"),
        ({"CRAWL_START_URL": "https://example.org/"}, "CRAWL_TO is not set"),
        ({"CRAWL_START_URL": "u", "CRAWL_TO": "t", "CRAWL_PAGES": "many"}, "CRAWL_PAGES is a number, not 'many'"),
        (
            {"CRAWL_START_URL": "u v", "CRAWL_TO": "t", "JOB_COMPLETION_INDEX": "2"},
            "CRAWL_START_URL has 2 sites, and JOB_COMPLETION_INDEX is 2",
        ),
    ],
)
def test_environment_mistakes_are_reported_by_variable(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.of(environment)


def test_settings_parse_numbers_as_type_of_default() -> None:
    environment = {"CRAWL_START_URL": "u", "CRAWL_TO": "t", "CRAWL_PAGES": "5", "CRAWL_DELAY": "0.5"}
    assert Settings.of(environment) == Settings(start_url="u", to="t", pages=5, delay=0.5)


def test_job_index_selects_one_site() -> None:
    environment = {"CRAWL_START_URL": "u v\n  w", "CRAWL_TO": "t", "JOB_COMPLETION_INDEX": "1"}
    assert Settings.of(environment) == Settings(start_url="v", to="t", index=1)


def test_missing_bucket_is_reported_without_traceback(s3: dict[str, str]) -> None:
    with SiteServer(linked(3)) as server:
        environment = s3 | settings(server, "s3://no-such-bucket/pages")
        done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "no-such-bucket" in done.stderr
    assert "Traceback" not in done.stderr
