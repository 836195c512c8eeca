"""The Job of `examples/k8s`, with processes as its Pods and a store on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
import yaml
from crawl_to_s3 import main
from site_server import Answer, SiteServer
from test_crawl_to_s3 import bodies_in, linked

import asyncrec
from asyncrec.storage import MemoryStorage

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JOB = yaml.safe_load((ROOT / "examples" / "k8s" / "job.yaml").read_text("utf-8"))
POD = JOB["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
GRACE = POD["terminationGracePeriodSeconds"]
PATIENCE = 60  # in seconds, to detect a hang; a step takes a few
PAGES, FIRST = 60, 20  # the number of pages of each site, and how many of them are served at once


def exit_codes(action: str) -> set[int]:
    rules = [rule for rule in JOB["spec"]["podFailurePolicy"]["rules"] if rule["action"] == action]
    return {code for rule in rules if "onExitCodes" in rule for code in rule["onExitCodes"]["values"]}


class Gated(dict[str, Answer]):
    """A site that serves its first pages at once, and all others only after it is opened."""

    def __init__(self) -> None:
        super().__init__(linked(PAGES))
        self.opened = threading.Event()

    def get(self, path: str, default: Answer) -> Answer:
        if path.startswith("/p/") and int(path[3:]) >= FIRST:
            self.opened.wait(PATIENCE)
        return super().get(path, default)


class Cluster:
    """Two sites, and the Pods of Jobs that crawl them into the same data set.

    Attributes:
        sites: the two sites, which record their requests.
        to: the path of the data set.
    """

    def __init__(self, stack: ExitStack, folder: Path, secret: dict[str, str], **settings: float) -> None:
        self._stack = stack
        self._folder = folder
        self._secret = secret
        self._settings = {f"CRAWL_{name.upper()}": str(value) for name, value in settings.items()}
        self._gates = [Gated(), Gated()]
        self.sites = [stack.enter_context(SiteServer(gate)) for gate in self._gates]
        for gate in self._gates:
            stack.callback(gate.opened.set)
        self.to = f"s3://crawl/{folder.name}/pages"
        # A stand-in for the host name that Kubernetes gives each Pod.
        (folder / "sitecustomize.py").write_text(
            "import os, socket\nsocket.gethostname = lambda: os.environ['HOSTNAME']\n", "utf-8"
        )

    def start(self, index: int, *, job: str = JOB["metadata"]["name"]) -> subprocess.Popen[str]:
        """Start a Pod, on a machine that has run no other Pod."""
        memory = self._folder / f"memory-{time.monotonic_ns()}"
        memory.mkdir()
        environment = {each["name"]: each["value"] for each in CONTAINER["env"]}
        assert environment["XDG_RUNTIME_DIR"] == "/dev/shm"
        environment |= self._settings | self._secret
        environment |= {
            "CRAWL_START_URL": " ".join(site.url for site in self.sites),
            "CRAWL_TO": self.to,
            "CRAWL_DELAY": "0",
            "HOME": "/nonexistent",
            "HOSTNAME": f"{job}-{index}",
            "JOB_COMPLETION_INDEX": str(index),
            "PYTHONPATH": str(self._folder),
            "XDG_RUNTIME_DIR": str(memory),
        }
        python, script = CONTAINER["command"]
        command = [sys.executable, script.replace("/app/", f"{ROOT}/")]
        assert python == "python"
        pod = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self._stack.callback(pod.communicate)
        self._stack.callback(pod.kill)
        return pod

    def open_site(self, number: int) -> None:
        """Serve the pages that were held back, and clear the site's recorded requests."""
        self.sites[number].asked.clear()
        self._gates[number].opened.set()

    def asked_again(self, number: int) -> set[str]:
        """Return the pages among the first ones that were requested again since then."""
        return {path for path, _ in self.sites[number].asked} & {f"/p/{page}" for page in range(FIRST)}

    def pages(self, *, first: bool = False) -> dict[str, bytes]:
        """Return the expected pages of the data set: all, or only the first ones."""
        return {
            site.url + path[1:]: body
            for site, gate in zip(self.sites, self._gates, strict=True)
            for path, (_, _, body) in gate.items()
            if not first or path == "/" or int(path[3:]) < FIRST
        }

    def left(self) -> int:
        """Count the records that would be recovered, from a copy of the store, if all machines were lost now."""
        with suppress(asyncrec.AsyncRecError):  # the store may change while it is copied
            return anyio.run(self._left)
        return -1

    async def _left(self) -> int:
        copy = MemoryStorage()
        folder, name = self.to.rsplit("/", 1)
        async with asyncrec.open_storage(folder) as store:
            for key in [info.key async for info in store.list_objects("")]:
                await copy.put(key, await store.get(key))
        writers = [each.id for each in (await asyncrec.recover(name, storage=copy)).unfinished]
        await asyncrec.recover(name, storage=copy, dead=writers)
        return (await asyncrec.read_manifest(name, storage=copy)).records

    def silence(self) -> float:
        """Return for how many seconds none of the writers' objects in the store have changed."""
        return anyio.run(self._silence)

    async def _silence(self) -> float:
        async with asyncrec.open_storage(self.to.rpartition("/")[0]) as store:
            changed = max([info.modified async for info in store.list_objects("")])
        return (datetime.now(UTC) - changed).total_seconds()


@contextmanager
def cluster(folder: Path, secret: dict[str, str], **settings: float) -> Iterator[Cluster]:
    secret = {name: value for name, value in secret.items() if name.startswith("AWS_") or name == "NO_PROXY"}
    with ExitStack() as stack:
        yield Cluster(stack, folder, secret, **settings)


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def said(pod: subprocess.Popen[str], timeout: float = PATIENCE) -> str:
    """Wait for a Pod to end, and return what it logged."""
    return pod.communicate(timeout=timeout)[1]


def test_sigterm_ends_pods_in_time_after_committing_all(s3: dict[str, str], tmp_path: Path) -> None:
    with cluster(tmp_path, s3, flush_seconds=1) as world:
        pods = [world.start(0), world.start(1)]
        until(lambda: world.left() == 2 * (1 + FIRST))
        for pod in pods:
            pod.send_signal(signal.SIGTERM)
        limit = time.monotonic() + GRACE
        logs = [said(pod, limit - time.monotonic()) for pod in pods]
        assert {pod.returncode for pod in pods} <= exit_codes("Ignore"), logs
        assert bodies_in(world.to) == world.pages(first=True)
        assert anyio.run(asyncrec.recover, world.to) == asyncrec.Recovery()


def test_next_pod_recovers_flushed_records(s3: dict[str, str], tmp_path: Path) -> None:
    """A Pod with the same index recovers them immediately; for any other Pod, nothing proves the writer dead."""
    with cluster(tmp_path, s3, flush_seconds=1) as world:
        killed, other = world.start(0), world.start(1)
        until(lambda: world.left() == 2 * (1 + FIRST))
        killed.kill()
        said(killed)
        world.open_site(0)
        again = world.start(0)
        log = said(again)
        assert again.returncode == 0, log
        assert world.asked_again(0) == set()
        assert other.poll() is None
        world.open_site(1)
        log = said(other)
        assert other.returncode == 0, log
        assert bodies_in(world.to) == world.pages()


def test_another_job_recovers_records_flushed_by_silent_pods(s3: dict[str, str], tmp_path: Path) -> None:
    with cluster(tmp_path, s3, flush_seconds=1, dead_after=3) as world:
        pods = [world.start(0), world.start(1)]
        until(lambda: world.left() == 2 * (1 + FIRST))
        for pod in pods:
            pod.kill()
            said(pod)
        until(lambda: world.silence() > 3 + 1.5)
        for index in (0, 1):
            world.open_site(index)
        pods = [world.start(0, job="another"), world.start(1, job="another")]
        for index, pod in enumerate(pods):
            log = said(pod)
            assert pod.returncode == 0, log
            assert world.asked_again(index) == set(), log
        assert bodies_in(world.to) == world.pages()


def test_missing_setting_fails_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRAWL_START_URL", raising=False)
    assert exit_codes("FailJob") == {main()}
