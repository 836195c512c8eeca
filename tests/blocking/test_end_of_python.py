"""When Python exits, open objects are closed, and lose no more than if an exception left their `with` block.

Each program runs in a separate process: with this Python; with this Python changed to behave like 3.12.0 and 3.12.1,
which start no threads once their exit has begun; without the private hook that `asyncrec.compat` uses; and with other
Pythons, if there is an environment ``.venv-3.12`` or ``.venv-3.13`` with asyncrec and its S3 plugin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test modules are imported by path, but helper modules are imported by name.
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-s3/tests"))

from s3_store import Store, running_store  # importable because of the line above

from asyncrec import blocking

ROOT = Path(__file__).parents[2]

NO_THREADS = """
import threading

def refusing(start):
    def begin(*args, **options):
        if threading._SHUTTING_DOWN:
            raise RuntimeError("can't create new thread at interpreter shutdown")
        return start(*args, **options)
    return begin

for name in ("_start_new_thread", "_start_joinable_thread"):
    if hasattr(threading, name):
        setattr(threading, name, refusing(getattr(threading, name)))
"""

NO_HOOKS = """
import concurrent.futures.thread, threading
del threading._register_atexit
"""

EVERYTHING_LEFT_OPEN = """
import sys, threading
from asyncrec import blocking
from asyncrec.compat import tensorflow as tf
from asyncrec.compat.tensorboardx import RecordWriter

folder, store = sys.argv[1:]
events = [RecordWriter(store + "/events"), RecordWriter(folder + "/events"), tf.io.TFRecordWriter(folder + "/tf")]
for each in events:
    each.write(b"event")

writers = [
    blocking.open_sharded_writer(folder + "/local").__enter__(),
    blocking.open_sharded_writer(store + "/far").__enter__(),
    blocking.open_sharded_writer(store + "/spooled", spool=folder + "/spool").__enter__(),
]
for writer in writers:
    for number in range(10):
        writer.write(b"%d" % number, key=str(number))

def generate():
    with blocking.open_sharded_writer(folder + "/generated") as writer:
        for number in range(20):
            writer.write(b"%d" % number)
            yield

held = generate()
for _ in range(10):
    next(held)

opened = threading.Event()

def outlive():
    late = RecordWriter(store + "/late")
    late.write(b"event")
    events.append(late)
    with blocking.open_sharded_writer(folder + "/outlived") as writer:
        opened.set()
        threading.main_thread().join()
        for number in range(10):
            writer.write(b"%d" % number)
        writer.commit()
        late.write(b"later")

threading.Thread(target=outlive).start()
opened.wait()
"""


def python(name: str) -> list[str]:
    if name.startswith("this"):
        return [sys.executable]
    there = ROOT / f".venv-{name}/bin/python"
    if not there.exists():
        pytest.skip(
            f"no environment: python{name} -m venv .venv-{name}, and its pip install -e . -e plugins/asyncrec-s3"
        )
    return [str(there)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture
def environment(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set up the environment for a store whose host name asyncio has to resolve in a thread."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "S3_ENDPOINT": store.endpoint.replace("127.0.0.1", "localhost"),
        "AWS_ACCESS_KEY_ID": store.access_key,
        "AWS_SECRET_ACCESS_KEY": store.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.mark.slow
@pytest.mark.timeout(300)  # five writers in one process, on a machine that may be busy
@pytest.mark.parametrize("name", ["this", "this without threads", "this without hooks", "3.12", "3.13"])
def test_open_handles_lose_no_records_at_exit(
    name: str, store: Store, environment: dict[str, str], tmp_path: Path
) -> None:
    """The handles are blocking writers with buffered records and files of `asyncrec.compat`, on disk, S3 or a spool."""
    first = {"this without threads": NO_THREADS, "this without hooks": NO_HOOKS}
    program = first.get(name, "") + EVERYTHING_LEFT_OPEN
    remote = f"s3://{store.bucket}/{name.replace(' ', '-')}"
    done = subprocess.run(
        [*python(name), "-c", program, str(tmp_path), remote],
        capture_output=True, text=True, check=False, timeout=280, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")  # also shows that nothing was retried, which would be logged
    for path in (f"{remote}/events", tmp_path / "events", tmp_path / "tf"):
        assert blocking.read_records(path) == [b"event"]
    assert blocking.read_records(f"{remote}/late") == [b"event", b"later"]
    for path in (
        tmp_path / "local",
        f"{remote}/far",
        f"{remote}/spooled",
        tmp_path / "generated",
        tmp_path / "outlived",
    ):
        with blocking.open_dataset(path) as dataset:
            assert list(dataset) == [b"%d" % number for number in range(10)], path


IN_AN_EXIT_HANDLER = """
import atexit, sys
from asyncrec import blocking

context = blocking.open_writer(sys.argv[1])

@atexit.register
def leave():
    try:
        context.__exit__(None, None, None)
    except RuntimeError as error:
        print(error)
    try:
        blocking.read_records(sys.argv[1])
    except RuntimeError as error:
        print(error)

context.__enter__().write(b"1")
"""


def test_call_in_exit_handler_raises_clear_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_AN_EXIT_HANDLER, str(tmp_path / "x")], capture_output=True, text=True, check=True
    )
    told = "Python is exiting and has already closed all open objects, as after an exception; leave the with statement"
    leaving, reading = done.stdout.splitlines()
    assert leaving.startswith(f"open_writer: {told}")
    assert reading.startswith(f"asyncrec.blocking: {told}")
    assert (done.stderr, list(tmp_path.iterdir())) == ("", [])
