"""The demo runs as a user runs it: as a program, on real pages, and stopped by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from crawl_site import SCHEMA, package_of
from site_server import Answer, SiteServer

import asyncrec
from asyncrec.pages import PAGE

CRAWL_SITE = Path(__file__).parents[2] / "examples" / "crawl_site.py"
LOCAL_SITE = CRAWL_SITE.parent / "crawling" / "local_site.py"
PATIENCE = 60  # in seconds, to detect a hang; a run takes about one


def environment() -> dict[str, str]:
    return {**os.environ, "NO_PROXY": "127.0.0.1", "COLUMNS": "120"}


def crawl(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CRAWL_SITE), *options]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def pages_in(dataset: Path) -> dict[str, dict[str, Any]]:
    """Return the pages of a data set by URL, after verifying every checksum and that no URL is repeated."""
    return anyio.run(_pages_in, dataset)


async def _pages_in(dataset: Path) -> dict[str, dict[str, Any]]:
    pages: dict[str, dict[str, Any]] = {}
    manifest = await asyncrec.read_manifest(str(dataset))
    for path in await asyncrec.list_shards(manifest):
        for record in await asyncrec.read_records(path):
            page = SCHEMA.decode(record)
            assert page["url"] not in pages
            pages[page["url"]] = page
    assert len(pages) == manifest.records
    assert manifest.schema is not None
    assert asyncrec.Schema.from_json(manifest.schema) == SCHEMA
    return pages


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_record_is_page_and_its_package() -> None:
    assert list(SCHEMA.features) == [*PAGE.features, "package"]


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("http://h/asyncio/events.py", "asyncio"),
        ("http://h/asyncio/", "asyncio"),
        ("http://h/a%20b/c/d.py", "a b"),
        ("http://h/abc.py", "(top)"),
        ("http://h/", "(top)"),
        ("http://h//x", "(top)"),
    ],
)
def test_package_is_first_folder(url: str, package: str) -> None:
    assert package_of(url) == package


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"", "naïve ✓".encode(), b"\xff\xfe\x00", b"\r\n\x00"])
def test_record_stores_page_with_arbitrary_bytes(tmp_path: Path, body: bytes) -> None:
    with SiteServer({"/asyncio/x": (200, {"Content-Type": "text/plain; charset=utf-8"}, body)}) as server:
        assert crawl(tmp_path, "--start-url", f"{server.url}asyncio/x", "--delay", "0").returncode == 0
        (page,) = pages_in(tmp_path / "demo-data" / "pages").values()
        assert page["url"] == f"{server.url}asyncio/x"
    assert (page["status"], page["content"], page["package"]) == (200, body, "asyncio")
    assert (page["content_type"], page["charset"]) == ("text/plain; charset=utf-8", "utf-8")


@pytest.mark.slow
def test_second_crawl_continues_alongside_first(tmp_path: Path) -> None:
    dataset = tmp_path / "demo-data" / "pages"

    first = crawl(tmp_path, "--pages", "40")
    assert (first.returncode, first.stderr) == (0, "")
    assert "40 records" in first.stdout
    assert "as many as the manifest says" in first.stdout
    pages = pages_in(dataset)
    assert len(pages) == 40
    library = Path(os.__file__).parent
    documents = {url: page for url, page in pages.items() if not url.endswith("/")}
    assert documents
    for url, page in documents.items():
        assert page["content"] == (library / url.split("/", 3)[3]).read_bytes()
    written = files_in(dataset.parent)

    second = crawl(tmp_path, "--pages", "10")
    assert (second.returncode, second.stderr) == (0, "")
    assert len(pages_in(dataset)) == 50
    now = files_in(dataset.parent)
    assert {name: now[name] for name in written} == written, "the second run touched what the first had written"


# The schema with which the demo stored pages before it used `asyncrec.pages`.
FORMER = {"status": "int64", "content_type": "str", "fetched": "str", "package": "str", "body": "bytes", "url": "str"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [None, asyncrec.Schema({name: asyncrec.FixedLen((), kind) for name, kind in FORMER.items()})],  # type: ignore[arg-type]
    ids=["none", "former"],
)
def test_crawl_refuses_to_change_data_set_of_other_records(tmp_path: Path, schema: asyncrec.Schema | None) -> None:
    async def write() -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=schema, validate="none") as writer:
            await writer.write(b"no page")

    anyio.run(write)
    before = files_in(tmp_path)
    run = crawl(tmp_path, "--pages", "3", "--to", "pages")
    assert run.returncode == 1
    assert run.stderr == (
        "crawl_site: pages holds other records than this program writes; give another place with --to, or remove what "
        "an older version wrote\n"
    )
    assert files_in(tmp_path) == before


@pytest.mark.slow
def test_progress_bar_appears_on_terminal(tmp_path: Path) -> None:
    """Without a terminal, nothing is printed to standard error, as the other tests check."""
    terminal, side = os.openpty()
    env = {**environment(), "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, str(CRAWL_SITE), "--pages", "20"]
    shown = b""
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        with suppress(OSError):  # Linux raises this once all writers have closed the terminal
            while block := os.read(terminal, 4096):
                shown += block
        assert process.wait(PATIENCE) == 0
    os.close(terminal)
    assert "Crawling python" in shown.decode()
    assert "/20 pages" in shown.decode()


def linked(pages: int) -> dict[str, Answer]:
    """Return a site with a listing that links to this many pages."""
    listing = "".join(f'<a href="/p/{page}">{page}</a>' for page in range(pages))
    html = {"Content-Type": "text/html"}
    return {"/": (200, html, listing.encode())} | {
        f"/p/{page}": (200, html, b"page %d" % page) for page in range(pages)
    }


def chained(pages: int) -> dict[str, Answer]:
    """Return a site on which each page is linked only from the one before."""
    html = {"Content-Type": "text/html"}
    names = ["/", *(f"/p/{page}" for page in range(pages))]
    return {name: (200, html, f'<a href="{to}">'.encode()) for name, to in zip(names, [*names[1:], "/"], strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_crawl_cleanly_and_next_run_continues(tmp_path: Path, number: signal.Signals) -> None:
    with SiteServer(linked(300), busy_after=20) as server:
        command = [sys.executable, str(CRAWL_SITE), "--start-url", server.url, "--delay", "0.01", "--pages", "500"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert server.busy.wait(PATIENCE)
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (128 + number, "")
        assert f"Ended by {number.name}" in out

        pages = pages_in(tmp_path / "demo-data" / "pages")
        assert 1 <= len(pages) < 300, "what was written before the signal is committed"
        assert f"Committed: {len(pages)} records" in out
        assert not [name for name in files_in(tmp_path) if name.endswith(".partial")]

        asked = len(server.asked)
        assert crawl(tmp_path, "--start-url", server.url, "--delay", "0", "--pages", "500").returncode == 0
        assert len(pages_in(tmp_path / "demo-data" / "pages")) == 301
        assert not {path for path, _ in server.asked[asked:]} & {"/" + url.split("/", 3)[3] for url in pages}


@pytest.mark.slow
def test_next_run_follows_links_of_pages_recovered_from_disk(tmp_path: Path) -> None:
    dataset = tmp_path / "demo-data" / "pages"
    with SiteServer(chained(20)) as server:
        page = {"url": server.url, "status": 200, "package": "(top)", "content_type": "text/html"}
        writing = f"""
import anyio, os, asyncrec
from crawl_site import SCHEMA

async def main():
    path = {str(dataset)!r}
    async with asyncrec.open_sharded_writer(path, max_shard_bytes=1 << 20, schema=SCHEMA, key_feature="url") as writer:
        await writer.write({page | {"content": b'<a href="/p/0">'}})
        await writer.flush(require="spooled")
        os._exit(9)

anyio.run(main)
"""
        killed = subprocess.run([sys.executable, "-c", writing], cwd=CRAWL_SITE.parent, check=False)
        assert killed.returncode == 9
        assert crawl(tmp_path, "--start-url", server.url, "--delay", "0").returncode == 0
    assert len(pages_in(dataset)) == 21


def test_two_signals_end_crawl_without_traceback(tmp_path: Path) -> None:
    with SiteServer(linked(300), busy_after=20) as server:
        command = [sys.executable, str(CRAWL_SITE), "--start-url", server.url, "--delay", "0.01", "--pages", "500"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert server.busy.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, (out, err)
    assert len(err.split("\n")) <= 3
    assert "Traceback" not in out + err


def test_ctrl_c_during_imports_exits_quietly(tmp_path: Path) -> None:
    (tmp_path / "anyio.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, str(CRAWL_SITE)],
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_robots_txt_is_obeyed_and_missing_pages_are_named(tmp_path: Path) -> None:
    html = {"Content-Type": "text/html"}
    answers: dict[str, Answer] = {
        "/robots.txt": (200, {}, b"User-agent: *\nDisallow: /private/\n"),
        "/": (200, html, b'<a href="/a"><a href="/private/b"><a href="/gone"><a href="/old">'),
        "/a": (200, html, b"a"),
        "/private/b": (200, html, b"b"),
        "/old": (302, {"Location": "/new"}, b""),
        "/new": (200, html, b"new"),
    }
    with SiteServer(answers) as server:
        done = crawl(tmp_path, "--start-url", server.url, "--delay", "0", "--to", "here/pages")
        urls = {server.url, f"{server.url}a", f"{server.url}new"}
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 (status 404)" in done.stdout
    assert set(pages_in(tmp_path / "here" / "pages")) == urls
    assert "/private/b" not in [path for path, _ in server.asked]


def test_missing_start_page_is_reported_in_one_line(tmp_path: Path) -> None:
    with SiteServer({}) as server:
        done = crawl(tmp_path, "--start-url", f"{server.url}nowhere", "--delay", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"crawl_site: {server.url}nowhere gave no page: 1 (status 404)\n"


@pytest.mark.slow
def test_crawl_writes_to_any_storage(tmp_path: Path) -> None:
    done = crawl(tmp_path, "--pages", "20", "--to", "memory://crawl/pages")
    assert (done.returncode, done.stderr) == (0, "")
    assert "20 records" in done.stdout
    assert files_in(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--pages", "0"], 2, "--pages: at least 1"),
        (["--pages", "many"], 2, "invalid int value"),
        (["--delay", "-1"], 2, "--delay: from 0"),
        (["--start-url", "example.org"], 2, "--start-url: a plain http:// or https:// address"),
        (["--start-url", "http://["], 2, "--start-url: a plain http:// or https:// address"),
        (["--start-url", "https://user:secret@example.org/"], 2, "--start-url: a plain http:// or https:// address"),
        (["--start-url", "https://"], 2, "--start-url: a plain http:// or https:// address"),
        (["--to", "demo-data/"], 2, "--to: a folder and a name"),
        (["--to", ""], 2, "--to: a folder and a name"),
        (["--to", "demo-data/_pages"], 2, "--to: a folder and a name"),
        (["--nonsense"], 2, "unrecognized arguments"),
        (["--start-url", "http://127.0.0.1:9/"], 1, "http://127.0.0.1:9/ cannot be reached"),
        (["--to", "nosuch://bucket/pages"], 1, "nosuch"),
        (["--to", "file-in-the-way/pages"], 1, "file-in-the-way"),
    ],
)
def test_usage_errors_are_reported_without_traceback(
    tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    (tmp_path / "file-in-the-way").write_text("")
    done = crawl(tmp_path, *options)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_local_server_exits_after_its_input_closes(tmp_path: Path) -> None:
    """If its parent is killed, the only sign is that its standard input is closed."""
    with subprocess.Popen(
        [sys.executable, str(LOCAL_SITE), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert int(server.stdout.readline()) > 0
        server.send_signal(signal.SIGINT)  # Ctrl-C is sent to both processes; the crawler decides when to stop
        server.stdin.close()
        assert server.wait(PATIENCE) == 0
