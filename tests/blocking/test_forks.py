"""In a forked child, every public call on an object that was opened before the fork raises RuntimeError at once."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from asyncrec import blocking

# Runs in its own process: the parent's threads hold every lock, as in a program that forks while it writes. Each
# attribute of each object is tried in a separate child, which an alarm kills if it hangs.
PROGRAM = """
import inspect, os, signal, sys, threading, anyio, asyncrec
from asyncrec import blocking

FOLDER = sys.argv[1]
reached, released = threading.Semaphore(0), threading.Event()

class StuckSink:
    # Takes nothing until it is released.
    def __init__(self, opening):
        self.opening = opening
    async def __aenter__(self):
        self.sink = await self.opening.__aenter__()
        send = self.sink.send
        async def late(buffers):
            reached.release()
            await anyio.to_thread.run_sync(released.wait)
            await send(buffers)
        self.sink.send = late
        return self.sink
    async def __aexit__(self, *error):
        return await self.opening.__aexit__(*error)

def slow_partition(record):
    if record == b"slow":
        reached.release()
        released.wait()
    return 0

def tried(what, use):
    child = os.fork()
    if not child:
        signal.alarm(10)
        status = 1
        try:
            use()
        except RuntimeError as error:
            status = 0 if "before a fork" in str(error) else 2
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        codes = {1: "did not raise", 2: "raised something else", -signal.SIGALRM: "hung"}
        print(what, codes.get(code, code))

SPECIAL = {"__getitem__": lambda it: it[0], "__iter__": lambda it: next(iter(it)), "__len__": len, "__next__": next}

def looked_up(method):
    taken = [each for each in inspect.signature(method).parameters.values()
             if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
    given = method(*[{} if each.name == "state" else "1" for each in taken])
    if inspect.isgenerator(given):
        next(given)
    elif hasattr(type(given), "__enter__"):
        given.__enter__()

def try_all(it):
    for name in dir(it):
        what = f"{type(it).__name__}.{name}"
        if name in SPECIAL:
            tried(what, lambda: SPECIAL[name](it))
        elif not name.startswith("_"):
            tried(what, lambda: getattr(it, name))
            method = callable(getattr(type(it), name, None)) and getattr(it, name)
            if method and name != "forked":
                tried(what + ", looked up before", lambda: looked_up(method))

FOUND = set()

class Trying:
    # Opens what it is given, tries it, and its exit, each in a child.
    thread = None
    def __init__(self, opening):
        self.opening = opening
    def __enter__(self):
        self.it = self.opening.__enter__()
        return self.it
    def __exit__(self, *error):
        if error[0] is None:
            FOUND.update(base.__name__ for base in type(self.it).__mro__ if hasattr(blocking, base.__name__))
            try_all(self.it)
            tried(f"leaving {type(self.it).__name__}", lambda: self.opening.__exit__(None, None, None))
            leave = KeyError("left")
            tried(f"leaving {type(self.it).__name__} on an error", lambda: self.opening.__exit__(KeyError, leave, None))
            released.set()
            if self.thread:
                self.thread.join()
        return self.opening.__exit__(*error)

records = [asyncrec.encode_example({"label": i % 2, "n": i}) for i in range(600)]
pages = FOLDER + "/pages"
schema = {"label": asyncrec.FixedLen((), "int64"), "n": asyncrec.FixedLen((), "int64")}
with blocking.open_sharded_writer(pages, schema=schema) as writer:
    writer.write_many(records)
file = blocking.list_shards(pages)[0]

trying = Trying(blocking.open_sharded_writer(FOLDER + "/other", partition_by=slow_partition))
with trying as writer:
    writer.write(b"1")
    trying.thread = threading.Thread(target=writer.write, args=(b"slow",))
    trying.thread.start()
    reached.acquire()
released.clear()
with blocking.open_storage("memory://") as local:
    store, open_sink = local.storage, local.storage.open_sink
    store.open_sink = lambda key, **options: StuckSink(open_sink(key, **options))
    trying = Trying(blocking.open_writer("file", storage=store))
    with trying as writer:
        trying.thread = threading.Thread(target=writer.write_many, args=([bytes(1 << 20)] * 20,))
        trying.thread.start()
        reached.acquire()
with Trying(blocking.open_reader(file)) as reader:
    next(reader)
    lists = reader.batches()
    examples = reader.examples()
    next(examples)
    tried("batches of a reader", lambda: next(lists))
    tried("examples of a reader", lambda: next(examples))
with Trying(blocking.interleave([file])) as stream:
    next(stream)
with Trying(blocking.open_dataset(pages)) as dataset:
    one_by_one = iter(dataset)
    next(one_by_one)
    tried("iteration over a data set", lambda: next(one_by_one))
    sampler = blocking.ClassBalancedSampler(dataset, 2, 2, class_feature="label")
    tried("a sampler over a data set", sampler.__enter__)
    with Trying(dataset.shuffled()) as shuffled:
        batches = shuffled.batches(5)
        next(batches)
        tried("batches of a stream", lambda: next(batches))
    with Trying(blocking.ClassBalancedSampler(dataset, 2, 2, class_feature="label")) as sampler:
        next(sampler)
with Trying(blocking.InterleaveSampler(FOLDER, bytes, shard_suffix='pages-*.tfrecord')) as sampler:
    next(sampler)
with Trying(blocking.open_split(FOLDER, "pages")) as split:
    next(split.batches())
with Trying(blocking.generate_dataset(file)) as tuples:
    next(tuples)
with Trying(blocking.open_storage(FOLDER)) as store:
    with Trying(store.open_source(os.path.basename(file))) as source:
        source.receive(10)
    with Trying(store.open_sink("sink")) as sink:
        sink.send([b"1"])
with Trying(blocking.open_file(FOLDER + "/plain")) as plain:
    plain.write(b"1")
made = blocking.DatasetWriter(lambda: [], None, FOLDER, "train")
FOUND.add(type(made).__name__)
try_all(made)
print("tried", *sorted(FOUND))
"""


@pytest.mark.slow
def test_forked_child_cannot_use_any_public_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, str(tmp_path)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    *wrong, tried = done.stdout.splitlines() or [""]
    assert wrong == [], done.stderr
    classes = {name for name in blocking.__all__ if inspect.isclass(getattr(blocking, name))}
    assert set(tried.split()[1:]) == classes, done.stderr
    assert done.returncode == 0, done.stderr


NESTED = """
import os, sys
from asyncrec import blocking
with blocking.open_sharded_writer(sys.argv[1] + "/pages") as writer:
    writer.write(b"1")
    child = os.fork()
    if not child:
        grandchild = os.fork()
        if not grandchild:
            try:
                writer.write(b"2")
            except RuntimeError as error:
                with blocking.open_sharded_writer(sys.argv[1] + "/others") as other:
                    other.write(b"3")
                os._exit("before a fork" not in str(error))
            os._exit(9)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_grandchild_process_rejects_inherited_handles_and_opens_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", NESTED, str(tmp_path)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert blocking.read_manifest(tmp_path / "others").records == 1
    assert blocking.read_manifest(tmp_path / "pages").records == 1
