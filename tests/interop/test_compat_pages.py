"""On the "Coming from" pages, the old script and the new one both run, with the same result.

TFRecorder and TensorFlow Similarity are not installed here: only the new scripts run, here or in `make test`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from asyncrec import blocking, encode_example

PAGES = Path(__file__).parents[2] / "docs" / "coming-from"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (PAGES / f"{page}.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)


def run(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **namespace: Any) -> None:
    folder.mkdir()
    monkeypatch.chdir(folder)
    exec(code, {"__name__": "__main__", **namespace})


def test_tensorboardx_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, installed, *_ = blocks("tensorboardx")
    monkeypatch.chdir(tmp_path)
    os.mkdir("old")
    os.mkdir("old/logs")  # tensorboardX does not create it
    monkeypatch.chdir(tmp_path / "old")
    exec(old, {})
    run(new, tmp_path / "new", monkeypatch)
    name = "logs/events.out.tfevents"
    assert (tmp_path / "old" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()

    from tensorboardX import event_file_writer

    monkeypatch.setattr(event_file_writer, "RecordWriter", event_file_writer.RecordWriter)  # for the teardown
    monkeypatch.setattr(event_file_writer, "directory_check", event_file_writer.directory_check)
    namespace: dict[str, Any] = {}
    exec(installed.replace("s3://my-bucket", "memory://my-bucket"), namespace)
    namespace["writer"].close()
    with blocking.open_storage("memory://my-bucket") as store:
        assert len(list(store.list_objects("logs/events"))) == 1


def test_tensorflow_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, *_ = blocks("tensorflow")
    run(old, tmp_path / "old", monkeypatch)
    run(new, tmp_path / "new", monkeypatch)
    examples = [
        [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path), "GZIP")]
        for path in (tmp_path / "old" / "customers.tfrecord", tmp_path / "new" / "customers.tfrecord")
    ]
    assert examples[0] == examples[1]
    assert len(examples[0]) == 1


def test_datum_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, *_ = blocks("datum")
    printed = []
    for name, script in (("old", old), ("new", new)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        os.makedirs("data/cats")  # datum does not create it
        exec(script, {"__name__": "__main__"})
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    shard = "data/cats/train-00000-of-00001.tfrecord"
    parse = tf.train.Example.FromString
    records = [list(map(parse, blocking.read_records(tmp_path / name / shard))) for name in ("old", "new")]
    assert records[0] == records[1]
    assert len(records[0]) == 100


def test_tfsimilarity_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, new, *_ = blocks("tfsimilarity")
    for label in range(16):
        records = [encode_example({"x": [float(label)], "label": label})] * 10
        blocking.write_records(tmp_path / "new" / "data" / "shards" / f"{label}.tfrec", records)
    features = {"x": tf.io.FixedLenFeature((1,), tf.float32), "label": tf.io.FixedLenFeature((), tf.int64)}

    def deserialization_fn(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        return example["x"], example["label"]

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(16)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    monkeypatch.chdir(tmp_path / "new")
    exec(new.replace("=1000", "=20"), {"deserialization_fn": deserialization_fn, "model": model})
    assert model.optimizer.iterations == 20
