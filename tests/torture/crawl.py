"""Kill the README's first crawler with -9 at random times, and restart it each time, on a real local site.

In the end, every page must be stored exactly once, with its URL, status, headers and time. Only pages that were
requested in the last seconds before a kill may be fetched twice. The site records the time of each request.

A second crawl goes to ``s3://``, without a disk. Each restart is on a different machine, which knows nothing of the
others, and happens once the previous machine is presumed dead.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from row import Row
from store_processes import Store, running

from asyncrec import blocking, pages

_README = Path(__file__).parents[2] / "README.md"
# The extra delay allowed on a busy machine, in addition to flush_seconds and the fetch of a page.
_LATE = 3.0
# The minimum of dead_after. The next crawler starts _SILENCE after a kill, because stores round times to seconds.
_DEAD_AFTER = 2
_SILENCE = _DEAD_AFTER + 1.3
_MOST_SECONDS = 300


@dataclass(frozen=True)
class Form:
    """The size of a crawl. ``flush_seconds`` is `None` to use the README's, which is the default of five."""

    pages: int
    delay: float
    kills: int
    least: float
    most: float
    flush_seconds: float | None

    @classmethod
    def of(cls, rounds: int) -> Form:
        if rounds < 500:
            return cls(pages=1300, delay=0.1, kills=max(3, rounds // 25), least=0.5, most=2.5, flush_seconds=0.5)
        # With more kills, the site is slower, so that the crawl does not end before the last kill.
        kills = rounds // 25
        return cls(pages=5000, delay=kills / 40, kills=kills, least=1.0, most=10.0, flush_seconds=None)


class Site(ThreadingHTTPServer):
    """A site that serves each page after a delay.

    Attributes:
        asked: the times of the requests for each path.
        count: the number of all requests.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, delay: float) -> None:
        self.asked = defaultdict[str, list[float]](list)
        self.count = 0
        lock, site = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with lock:
                    site.asked[self.path].append(time.monotonic())
                    site.count += 1
                time.sleep(delay)
                page = b"<html>%s</html>" % self.path.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):  # the crawler was killed
                    super().handle()

        super().__init__(("127.0.0.1", 0), Handler)


def crawler(form: Form, port: int, target: str) -> str:
    """Return the program: a definition of the URLs, followed by the README's code."""
    blocks = re.findall(r"^```python\n(.*?)^```$", _README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = next(block for block in blocks if "open_sharded_writer" in block)
    program = f"urls = [f'http://127.0.0.1:{port}/{{n}}' for n in range({form.pages})]\n"
    if form.flush_seconds is not None:
        lines = lines.replace('"crawl/pages",', f'"crawl/pages", flush_seconds={form.flush_seconds},')
    if target != "crawl/pages":
        lines = lines.replace('"crawl/pages",', f'"crawl/pages", dead_after={_DEAD_AFTER},')
    return program + lines.replace('"crawl/pages"', f'"{target}"')


def looked(target: Path | str, form: Form, port: int) -> list[str]:
    """Return the faults found in the stored pages."""
    problems = []
    found: Counter[str] = Counter()
    with blocking.open_dataset(target) as dataset:
        for number in range(len(dataset)):
            page = pages.PAGE.decode(dataset[number])
            found[page["url"]] += 1
            headers = b"Content-Type: text/html" in page["headers"]
            if not (page["status"] == 200 and headers and page["date"] and page["content"].startswith(b"<html>")):
                problems.append(f"{page['url']} is not whole: {page}")
    wanted = {f"http://127.0.0.1:{port}/{number}" for number in range(form.pages)}
    problems += [f"{url} is missing" for url in sorted(wanted - set(found))]
    problems += [f"{url} is there {times} times" for url, times in found.items() if times > 1 or url not in wanted]
    return problems


def fetched_again(site: Site, kills: list[tuple[float, float]]) -> Iterator[float]:
    """For each page that was requested again after a kill, yield how long before the kill it was first requested.

    Each kill is given with the time at which the next run began; earlier requests are from the killed run. Repetitions
    within a run are ignored, because the client repeats requests after a connection breaks.
    """
    for times in site.asked.values():
        for first, then in itertools.pairwise(times):
            if ages := [max(0.0, kill - first) for kill, begun in kills if first < begun <= then]:
                yield ages[0]


def crawl(seed: int, rounds: int) -> Row:
    return tortured("README's crawler", seed, Form.of(rounds), None)


def crawl_to_s3(seed: int, rounds: int) -> Row:
    """Crawl to moto, with small ``flush_seconds`` and ``dead_after``, so that no start waits for two minutes."""
    folder = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
    form = replace(Form.of(rounds), flush_seconds=0.5, most=3.0)
    try:
        with running("moto", folder) as store:
            return tortured("the same, to s3://, on other machines", seed, form, store)
    finally:
        shutil.rmtree(folder)


def tortured(what: str, seed: int, form: Form, store: Store | None) -> Row:
    rng = random.Random(f"{seed} crawl")
    folder = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
    target, silence = ("crawl/pages", 0.0) if store is None else (f"{store.url}/crawl/pages", _SILENCE)
    if store is not None:
        os.environ |= {"AWS_ENDPOINT_URL_S3": store.options["endpoint_url"], "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ |= {name.upper(): value for name, value in store.options.items() if name.startswith("aws_")}
    site = Site(form.delay)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    (folder / "crawler.py").write_text(crawler(form, site.server_port, target))
    command = [sys.executable, "crawler.py"]
    kills: list[tuple[float, float]] = []
    for number in range(form.kills):
        begun = site.count
        machine = {} if store is None else another_machine(folder / f"run-{number}")
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, env=os.environ | machine) as process:
            deadline = time.monotonic() + _MOST_SECONDS
            while site.count == begun and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            with suppress(subprocess.TimeoutExpired):
                process.wait(form.least + rng.random() * (form.most - form.least))
                break  # the crawl is complete
            killed = time.monotonic()
            process.send_signal(signal.SIGKILL)
        time.sleep(silence)
        kills.append((killed, time.monotonic()))
    machine = {} if store is None else another_machine(folder / "run-last")
    environment = os.environ | machine
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False, env=environment
    )
    site.shutdown()
    site.server_close()
    found = folder / target if store is None else target
    problems = [done.stderr[-2000:]] if done.returncode else looked(found, form, site.server_port)
    twice = list(fetched_again(site, kills))
    limit = (form.flush_seconds or 5.0) + form.delay + _LATE
    problems += [f"fetched again: what was asked for {age:.1f} s before a kill" for age in twice if age > limit]
    if len(kills) < form.kills:
        problems.append(f"it had everything after {len(kills)} kills: it takes a slower site")
    for problem in problems[:5]:
        print(problem, flush=True)
    if not problems:
        shutil.rmtree(folder)
    oldest = max(twice, default=0.0)
    row = f"kill -9 of {what} ({form.pages:,} pages, {len(twice):,} twice, {oldest:.1f} s old)"
    return Row(row, len(kills), len(problems), seed)


def another_machine(folder: Path) -> dict[str, str]:
    """Return an environment as on a new machine, which cannot prove any earlier process dead."""
    folder.mkdir()
    return {"XDG_RUNTIME_DIR": str(folder)}


ROUNDS = [crawl, crawl_to_s3]
