"""TensorFlow and `asyncrec.compat.tensorflow`, compared check by check; see `differences/tensorflow.toml`."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as original
from beside import Check, listed, named, outcome, same

from asyncrec.compat import tensorflow as ours

TEXT = [b"abc" * (number % 500) for number in range(0, 3000, 7)]
RECORDS = [random.Random(2).randbytes(size % 2000) for size in range(0, 60_000, 701)]


def written(tf: Any, path: Any, records: list[Any], options: Any = None) -> bytes:
    with tf.io.TFRecordWriter(path, options) as writer:
        for record in records:
            writer.write(record)
    return Path(os.fsdecode(path)).read_bytes()


def read_back(options: Any, records: list[bytes] = TEXT) -> Check:
    """Return a check of what TensorFlow reads from a file written with these options: all of it, or an error."""

    def check(tf: Any, path: Path) -> Any:
        made = options(tf)
        written(tf, str(path / "x"), records, made)
        kind = tf.io.TFRecordOptions.get_compression_type_string(made)
        return [each.numpy() for each in original.data.TFRecordDataset(str(path / "x"), compression_type=kind)]

    return check


def option(kind: str, **given: Any) -> Check:
    return read_back(lambda tf: tf.io.TFRecordOptions(kind, **given))


def flushed(options: Any = None) -> Check:
    """Return a check of what others can read before the file is closed, whether or not its end is there."""

    def check(tf: Any, path: Path) -> Any:
        writer = tf.io.TFRecordWriter(str(path / "x"), options)
        sizes = []
        for _ in range(3):
            writer.write(b"abc")
            writer.flush()
            sizes.append((path / "x").exists() and (path / "x").stat().st_size > 0)
            if options is None:
                sizes.append((path / "x").read_bytes())
        writer.close()
        return sizes

    return check


def dropped(tf: Any, path: Path) -> Any:
    writer = tf.io.TFRecordWriter(str(path / "x"))
    writer.write(b"abc")
    del writer
    gc.collect()
    return (path / "x").read_bytes()


def program(end: str) -> Check:
    def check(tf: Any, path: Path) -> Any:
        module = "from asyncrec.compat import tensorflow as tf" if tf is ours else "import tensorflow as tf"
        code = f"import os\n{module}\nwriter = tf.io.TFRecordWriter('x')\nwriter.write(b'abc')\n{end}\n"
        subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, timeout=100)
        return (path / "x").read_bytes()

    return check


def after_close(does: str) -> Check:
    def check(tf: Any, path: Path) -> Any:
        writer = tf.io.TFRecordWriter(str(path / "x"))
        writer.close()
        return writer.write(b"x") if does == "write" else getattr(writer, does)()

    return check


def exists_when_opened(tf: Any, path: Path) -> Any:
    writer = tf.io.TFRecordWriter(str(path / "x"))
    there = (path / "x").exists()
    writer.close()
    return there


def old_content(tf: Any, path: Path) -> Any:
    (path / "x").write_bytes(b"old")
    writer = tf.io.TFRecordWriter(str(path / "x"))
    content = (path / "x").read_bytes()
    writer.close()
    return content


def after_old_content(tf: Any, path: Path) -> Any:
    (path / "x").write_bytes(b"old")
    return written(tf, str(path / "x"), [b"a"])


def exception(tf: Any, path: Path) -> Any:
    try:
        with tf.io.TFRecordWriter(str(path / "x")) as writer:
            writer.write(b"abc")
            raise KeyError
    except KeyError:
        return (path / "x").exists()


def kind_of(value: Any) -> Check:
    def check(tf: Any, path: Path) -> Any:
        options = tf.io.TFRecordOptions(value)
        return options.compression_type, tf.io.TFRecordOptions.get_compression_type_string(value)

    return check


def iterated(how: str) -> Check:
    def check(tf: Any, path: Path) -> Any:
        file = str(path / "x")
        data = written(tf, file, TEXT, "GZIP" if how.startswith("gzip") else None)
        if how == "truncated":
            (path / "x").write_bytes(data[:-5])
        elif how == "flipped":
            (path / "x").write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
        elif how == "empty":
            (path / "x").write_bytes(b"")
        elif how == "missing":
            (path / "x").unlink()
        return list(tf.compat.v1.io.tf_record_iterator(file, "GZIP" if how == "gzip" else None))

    return check


def helpers_of(tf: Any) -> Any:
    """Return the five helpers from the documentation: ours are built in, TensorFlow's are defined as documented."""
    if tf is ours:
        return tf
    train = tf.train
    return SimpleNamespace(
        int64_feature=lambda value: train.Feature(int64_list=train.Int64List(value=[value])),
        bytes_feature=lambda value: train.Feature(bytes_list=train.BytesList(value=[value])),
        float_list_feature=lambda value: train.Feature(float_list=train.FloatList(value=value)),
        bytes_list_feature=lambda value: train.Feature(bytes_list=train.BytesList(value=value)),
        int64_list_feature=lambda value: train.Feature(int64_list=train.Int64List(value=value)),
    )


def helper(name: str, value: Any) -> Check:
    def check(tf: Any, path: Path) -> Any:
        feature = getattr(helpers_of(tf), name)(value() if callable(value) else value)
        return str(feature), feature.SerializeToString()

    return check


VALUES: dict[str, list[Any]] = {
    "int64_feature": [
        32, -1, 2**63 - 1, 2**63, 1.5, "a", None, True, np.int32(4), [1], original.constant(4, original.int64),
    ],
    "bytes_feature": [b"32", "text", 3, None, b"", [b"a"], bytearray(b"a"), np.bytes_(b"a")],
    "float_list_feature": [
        [16, 32], [0.1, 0.2], np.array([0.1, 0.2]), np.random.RandomState(0).rand(3), [np.float64(0.1)],
        np.array([[1.0, 2.0]]), [], 3.0, ["a"], [1e300], None, range(3), [1, 2.5], original.constant([0.5, 0.1]),
        np.array([2**24 + 1]), lambda: (each / 2 for each in range(3)), [np.inf], np.float16([0.1]),
    ],
    "bytes_list_feature": [[b"32", b"16"], ["text"], [], b"ab", [1], np.array([b"a", b"b"]), None],
    "int64_list_feature": [[16, 32], [], np.arange(3), [1.5], [2**63], range(4), [True, False], None, 3],
}  # fmt: skip


def movie(tf: Any) -> Any:
    train = tf.train
    feature = {
        "Age": train.Feature(int64_list=train.Int64List(value=[29])),
        "Movie": train.Feature(bytes_list=train.BytesList(value=[b"The Shawshank Redemption", b"Fight Club"])),
        "Movie Ratings": train.Feature(float_list=train.FloatList(value=[9.0, 9.7])),
    }
    return train.Example(features=train.Features(feature=feature))


def put_into_theirs(tf: Any, path: Path) -> Any:
    feature = helpers_of(tf).int64_feature(1)
    return original.train.Features(feature={"a": feature}).SerializeToString()


def fork(tf: Any, path: Path) -> Any:
    return program("if not os.fork(): os._exit(0)\nos.wait(); writer.close()")(tf, path)


CHECKS: dict[str, Check] = {
    "bytes of a file": lambda tf, path: written(tf, str(path / "x"), RECORDS),
    "bytes of an empty file": lambda tf, path: written(tf, str(path / "x"), []),
    "bytes of a GZIP file": lambda tf, path: written(tf, str(path / "x"), TEXT, "GZIP"),
    "bytes of a ZLIB file": lambda tf, path: written(tf, str(path / "x"), TEXT, "ZLIB"),
    **{f"options {value!r}": read_back(lambda tf, value=value: value)
       for value in ("GZIP", "ZLIB", "", None, 2, "bad")},
    **{f"{kind} with window_bits={bits}": option(kind, window_bits=bits)
       for kind, each in {"": (8, 31), "ZLIB": (8, 9, 15, 31), "GZIP": (8, 15, 25, 31)}.items() for bits in each},
    **{f"{kind} with {name}={value}": option(kind, **{name: value})
       for kind in ("", "ZLIB", "GZIP")
       for name, value in {"flush_mode": 2, "input_buffer_size": 1000, "output_buffer_size": 100, "mem_level": 1,
                           "compression_level": 9, "compression_method": 8, "compression_strategy": 3}.items()},
    **{f"compression_type {value!r}": kind_of(value)
       for value in ("", None, "GZIP", "ZLIB", 0, 1, 2, 3, "gzip", "LZ4", b"GZIP", 1.0, True)},
    "write a str": lambda tf, path: written(tf, str(path / "x"), ["abc", "日本"]),
    "write a bytearray": lambda tf, path: written(tf, str(path / "x"), [bytearray(b"abc")]),
    "write a memoryview": lambda tf, path: written(tf, str(path / "x"), [memoryview(b"abc")]),
    "write an int": lambda tf, path: written(tf, str(path / "x"), [3]),
    "write None": lambda tf, path: written(tf, str(path / "x"), [None]),
    "write a message": lambda tf, path: written(tf, str(path / "x"), [tf.train.Example()]),
    **{f"{does} after it was closed": after_close(does) for does in ("write", "flush", "close")},
    "flushed": flushed(),
    "GZIP, flushed": flushed("GZIP"),
    "ZLIB, flushed": flushed("ZLIB"),
    "the file is there when it is opened": exists_when_opened,
    "what was there while a new one is written": old_content,
    "what was there afterwards": after_old_content,
    "an exception in a with": exception,
    "dropped": dropped,
    "Python ends": program(""),
    "Python ends by an error": program("raise KeyError"),
    "killed after a flush": program("writer.flush(); os.kill(os.getpid(), 9)"),
    "a fork": fork,
    "a missing folder": lambda tf, path: written(tf, str(path / "a/b/x"), [b"a"]),
    "a folder of that name": lambda tf, path: written(tf, str(path), [b"a"]),
    "a pathlib.Path": lambda tf, path: written(tf, path / "x", [b"a"]),
    "a path of bytes": lambda tf, path: written(tf, os.fsencode(path / "x"), [b"a"]),
    **{f"iterator: {how}": iterated(how.replace(",", "")) for how in
       ("plain", "gzip", "gzip, untold", "truncated", "flipped", "empty", "missing")},
    **{f"{name} {value!r}": helper(name, value) for name, values in VALUES.items() for value in values},
    "Example as text": lambda tf, path: sorted(str(movie(tf)).split("\n")),
    "Example as bytes": lambda tf, path: movie(tf).SerializeToString(deterministic=True),
    "bytes that are no Example": lambda tf, path: tf.train.Example.FromString(b"\xff\xff\xff"),
    "a wrong field of Example": lambda tf, path: tf.train.Example(feature=1),
    "the full name of Example": lambda tf, path: tf.train.Example.DESCRIPTOR.full_name,
    "a feature put into TensorFlow's Features": put_into_theirs,
    "text and bytes": lambda tf, path: (tf.compat.as_bytes("ü"), tf.compat.as_text(b"x"), tf.compat.as_str("y")),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_outcomes_match_tensorflow_except_as_listed(name: str, tmp_path: Path) -> None:
    theirs = outcome(CHECKS[name], original, tmp_path / "theirs")
    mine = outcome(CHECKS[name], ours, tmp_path / "ours")
    assert same(theirs, mine) == (name not in named("tensorflow")), f"{theirs!r:.300}, and here {mine!r:.300}"


def test_every_listed_difference_is_checked() -> None:
    assert named("tensorflow") <= CHECKS.keys()
    assert len(CHECKS) == listed("tensorflow")["compared"]
