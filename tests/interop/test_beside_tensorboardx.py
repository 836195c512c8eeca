"""tensorboardX's record writer and ours, compared check by check; `differences/tensorboardx.toml` lists differences."""

from __future__ import annotations

import gc
import io
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import tensorboardX.record_writer as original
from beside import Check, listed, named, outcome, same
from moto.server import ThreadedMotoServer

from asyncrec.compat import tensorboardx as ours
from asyncrec.storage import _registry as registry

RECORDS = [random.Random(1).randbytes(size % 3000) for size in range(0, 90_000, 601)]
NAMES = ["", "_x", ".", "/", "-a", "a b", "a\nb", "é", "$ave/&sound", "\0", "日本"]


class Opened:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def write(self, data: bytes) -> None:
        self.log.append(bytes(data))

    def flush(self) -> None:
        self.log.append("flush")

    def close(self) -> None:
        self.log.append("close")


class Factory:
    def __init__(self) -> None:
        self.log: list[Any] = []

    def open(self, path: str) -> Any:
        self.log.append(("open", path))
        return Opened(self.log)

    def directory_check(self, path: str) -> str:
        self.log.append(("folder", path))
        return "an answer"


def written(module: Any, path: str, records: list[Any]) -> bytes:
    writer = module.RecordWriter(path)
    for record in records:
        writer.write(record)
    writer.close()
    return Path(path).read_bytes()


def after_close(does: str) -> Check:
    def check(module: Any, path: Path) -> Any:
        writer = module.RecordWriter(str(path / "x"))
        writer.close()
        return writer.write(b"1") if does == "write" else getattr(writer, does)()

    return check


def with_factory(does: Any, prefix: str = "mine") -> Check:
    def check(module: Any, path: Path) -> Any:
        module.register_writer_factory(prefix, factory := Factory())
        answer = does(module, factory)
        joined = b"".join(each for each in factory.log if isinstance(each, bytes))
        return answer, [each for each in factory.log if not isinstance(each, bytes)], joined

    return check


def use(module: Any, factory: Factory) -> Any:
    answer = module.directory_check("mine://a/b")
    writer = module.RecordWriter("mine://a/b/c")
    writer.write(b"abc")
    writer.flush()
    writer.close()
    return answer


def flushed(module: Any, path: Path) -> Any:
    writer = module.RecordWriter(str(path / "x"))
    sizes = []
    for _ in range(3):
        writer.write(b"abc")
        writer.flush()
        sizes.append((path / "x").stat().st_size)
    writer.close()
    return sizes


def dropped(module: Any, path: Path) -> Any:
    writer = module.RecordWriter(str(path / "x"))
    writer.write(b"abc")
    del writer
    gc.collect()
    return (path / "x").read_bytes()


def program(end: str, write: str = 'writer.write(b"abc")', where: str = "x") -> Check:
    def check(module: Any, path: Path) -> Any:
        code = f"import os, {module.__name__} as m\nwriter = m.RecordWriter({where!r})\n{write}\n{end}\n"
        subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, timeout=60)
        return (path / "x").read_bytes() if where == "x" else None

    return check


def fork(module: Any, path: Path) -> Any:
    write = 'writer.write(b"abc"); writer.flush()'
    child = 'writer.write(b"child"); writer.flush(); os._exit(0)'
    end = f'if not os.fork():\n  {child}\nos.wait(); writer.write(b"p"); writer.close()'
    return program(end, write)(module, path)


def existing(content: bytes) -> Check:
    def check(module: Any, path: Path) -> Any:
        (path / "x").write_bytes(content)
        return written(module, str(path / "x"), [b"two"])

    return check


def two_at_once(module: Any, path: Path) -> Any:
    one, two = module.RecordWriter(str(path / "x")), module.RecordWriter(str(path / "x"))
    one.write(b"x")
    one.close()
    two.close()


def in_folder(does: Any) -> Check:
    def check(module: Any, path: Path) -> Any:
        before = os.getcwd()
        os.chdir(path)
        try:
            return does(module)
        finally:
            os.chdir(before)

    return check


def own_key_error(module: Any) -> Any:
    class Broken(Factory):
        def open(self, path: str) -> Any:
            raise KeyError("mine")

    module.register_writer_factory("mine", Broken())
    module.open_file("mine:x").close()


def only_open(module: Any, path: Path) -> Any:
    module.register_writer_factory("mine", type("OnlyOpen", (), {"open": lambda self, path: Opened([])})())
    writer = module.RecordWriter("mine:x")
    writer.write(b"a")
    writer.close()


def bytes_io(module: Any, path: Path) -> Any:
    module.register_writer_factory("mine", type("Memory", (Factory,), {"open": lambda self, path: io.BytesIO()})())
    writer = module.RecordWriter("mine:x")
    writer.write(b"a")
    writer.flush()


def folder_that_is_a_file(module: Any, path: Path) -> Any:
    (path / "x").touch()
    return module.directory_check(str(path / "x"))


def opened_file(module: Any, path: Path) -> Any:
    (path / "x").write_bytes(b"old")
    with module.open_file(str(path / "x")) as file:
        file.write(b"abc")
        return type(file), file.mode, file.name == str(path / "x")


def as_context(module: Any, path: Path) -> Any:
    with module.RecordWriter(str(path / "x")) as writer:
        writer.write(b"1")
    return True


def made_folders(module: Any, path: Path) -> Any:
    return module.directory_check(str(path / "a/b")), (path / "a/b").is_dir(), module.directory_check(str(path / "a/b"))


CHECKS: dict[str, Check] = {
    "bytes of a file": lambda module, path: written(module, str(path / "x"), RECORDS),
    "bytes of a large record": lambda module, path: written(module, str(path / "x"), [bytes(5 << 20)]),
    "bytes of no record": lambda module, path: written(module, str(path / "x"), []),
    "other buffers": lambda module, path: written(module, str(path / "x"), [bytearray(b"abc"), memoryview(b"abc")]),
    "a str": lambda module, path: written(module, str(path / "x"), ["abc"]),
    "an int": lambda module, path: written(module, str(path / "x"), [5]),
    "None": lambda module, path: written(module, str(path / "x"), [None]),
    "names": lambda module, path: [module.make_valid_tf_name(name) for name in NAMES],
    "flushed": flushed,
    "written to after it was closed": after_close("write"),
    "flushed after it was closed": after_close("flush"),
    "closed twice": after_close("close"),
    "dropped": dropped,
    "Python ends": program(""),
    "Python ends by an error": program("raise KeyError"),
    "killed after a flush": program("os.kill(os.getpid(), 9)", 'writer.write(b"abc"); writer.flush()'),
    "a fork": fork,
    "a file that has a record": existing(b"\x03\0\0\0\0\0\0\0\xb0\x99I\x0eabcnW\xf1!"),
    "a file that is no TFRecord": existing(b"some text that is no record at all"),
    "two writers of one file": two_at_once,
    "a missing folder": lambda module, path: written(module, str(path / "a/b/x"), [b"1"]),
    "a pathlib.Path": lambda module, path: written(module, path / "x", [b"1"]),  # type: ignore[arg-type]  # deliberately wrong
    "a folder of that name": lambda module, path: written(module, str(path), []),
    "a colon in a prefix": lambda module, path: module.register_writer_factory("a:b", Factory()),
    "an empty prefix": lambda module, path: module.register_writer_factory("", Factory()),
    "a factory that is none": lambda module, path: module.register_writer_factory("nothing", object()),
    "a factory is used": with_factory(use),
    "a factory's own s3": with_factory(lambda module, factory: module.RecordWriter("s3://b/k").close(), "s3"),
    "a factory without a directory_check": only_open,
    "a factory's BytesIO is flushed": bytes_io,
    "a factory's own KeyError": in_folder(own_key_error),
    "calls of a factory's write": lambda module, path: calls(module),
    "directory_check": made_folders,
    "directory_check of a file": folder_that_is_a_file,
    "open_file": opened_file,
    "open_file in a missing folder": lambda module, path: module.open_file(str(path / "a/x")).close(),
    "an unknown scheme": in_folder(lambda module: module.RecordWriter("foo://bar/x")),
    "a local name with a colon": in_folder(lambda module: written(module, "run:1", [b"1"])),
    "a local file named s3": in_folder(lambda module: written(module, "s3", [b"1"])),
    "a context manager": as_context,
    "the module's names": lambda module, path: [name for name in NAMES_OF_THE_MODULE if hasattr(module, name)],
}
NAMES_OF_THE_MODULE = [
    "GCSRecordWriter", "GCSRecordWriterFactory", "REGISTERED_FACTORIES", "RecordWriter", "S3RecordWriter",
    "S3RecordWriterFactory", "directory_check", "make_valid_tf_name", "open_file", "register_writer_factory",
]  # fmt: skip


def calls(module: Any) -> int:
    module.register_writer_factory("mine", factory := Factory())
    module.RecordWriter("mine:x").write(b"abc")
    return sum(isinstance(each, bytes) for each in factory.log)


# -- S3 ---------------------------------------------------------------------------------------------------------------


def s3_file(records: list[bytes], *, flush: bool = False, end: str = "close") -> Check:
    """Return a check of the object's size after each flush, and at the end."""

    def check(module: Any, path: Path) -> Any:
        key = f"{path.parent.name}/{path.name}/x"
        writer = module.RecordWriter(f"s3://bucket/{key}")
        found: list[Any] = []
        for record in records:
            writer.write(record)
            if flush:
                writer.flush()
                found.append(size_of(key))
        if end == "drop":
            del writer
            gc.collect()
        else:
            writer.close()
            if end == "write":
                writer.write(b"more")
        return [*found, size_of(key)]

    return check


def size_of(key: str) -> int | None:
    client = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"])
    return next(
        (each["Size"] for each in client.list_objects_v2(Bucket="bucket", Prefix=key).get("Contents", [])), None
    )


def s3_program(end: str) -> Check:
    def check(module: Any, path: Path) -> Any:
        key = f"{path.parent.name}/{path.name}/x"
        program(end, 'writer.write(b"abc"); writer.flush()', f"s3://bucket/{key}")(module, path)
        return size_of(key)

    return check


def missing_bucket(module: Any, path: Path) -> Any:
    writer = module.RecordWriter("s3://no-such-bucket/x")
    writer.write(b"1")
    try:
        writer.close()
    finally:
        writer._writer.closed = True  # otherwise, tensorboardX would try again when it is garbage-collected
    return None


S3_CHECKS: dict[str, Check] = {
    "s3: closed": s3_file(RECORDS),
    "s3: empty": s3_file([]),
    "s3: flushed": s3_file([b"1", b"2" * 1000, b"3"], flush=True),
    "s3: 9 MiB, flushed": s3_file([bytes(9 << 20), b"2"], flush=True),
    "s3: 20 MiB": s3_file([bytes(1 << 20)] * 20),
    "s3: dropped": s3_file([b"1"], end="drop"),
    "s3: written to after it was closed": s3_file([b"1"], end="write"),
    "s3: Python ends": s3_program(""),
    "s3: killed": s3_program("os.kill(os.getpid(), 9)"),
    "s3: os._exit": s3_program("os._exit(0)"),
    "s3: directory_check": lambda module, path: module.directory_check("s3://bucket/logs"),
    "s3: a missing bucket": missing_bucket,
}


@pytest.fixture(autouse=True)
def own_factories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registered", {})
    monkeypatch.setattr(original, "REGISTERED_FACTORIES", dict(original.REGISTERED_FACTORIES))
    warnings.simplefilter("ignore")


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "S3_ENDPOINT": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"]).create_bucket(Bucket="bucket")
        yield
    server.stop()


def compare(name: str, check: Check, folder: Path) -> None:
    theirs = outcome(check, original, folder / "theirs" / name.replace("/", ""))
    mine = outcome(check, ours, folder / "ours" / name.replace("/", ""))
    assert same(theirs, mine) == (name not in named("tensorboardx")), f"{theirs!r:.300}, and here {mine!r:.300}"


@pytest.mark.parametrize("name", CHECKS)
def test_outcomes_match_tensorboardx_except_as_listed(name: str, tmp_path: Path) -> None:
    compare(name, CHECKS[name], tmp_path)


@pytest.mark.parametrize("name", S3_CHECKS)
def test_s3_outcomes_match_tensorboardx_except_as_listed(name: str, tmp_path: Path, s3: None) -> None:
    compare(name, S3_CHECKS[name], tmp_path)


def test_every_listed_difference_is_checked() -> None:
    assert named("tensorboardx") <= {*CHECKS, *S3_CHECKS}
    assert len(CHECKS) + len(S3_CHECKS) == listed("tensorboardx")["compared"]
