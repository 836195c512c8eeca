"""The SDK's models are loaded with the same result as by the SDK, while other threads can run."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import FrameType

import botocore
import pytest
from asyncrec_s3.sdk import Models
from botocore.loaders import JSONFileLoader

DATA = Path(botocore.__file__).parent / "data"
NAMES = ("endpoints", "partitions", "s3/2006-03-01/service-2", "s3/2006-03-01/endpoint-rule-set-1", "none")


@pytest.mark.parametrize("name", NAMES)
def test_models_match_those_read_by_sdk(name: str) -> None:
    ours, its = (reader.load_file(str(DATA / name)) for reader in (Models(), JSONFileLoader()))
    # Compared as text, so that the order counts, too.
    assert json.dumps(ours) == json.dumps(its)


def test_uncompressed_model_file_takes_precedence(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"from": "plain"}')
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"from": "compressed"}'))
    assert Models().load_file(str(tmp_path / "a")) == {"from": "plain"}


def test_model_loader_yields_to_threads_at_each_object(tmp_path: Path) -> None:
    (tmp_path / "many.json").write_text(json.dumps([{"n": n} for n in range(1_000)]))
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"  # of a Python function, whose start lets other threads run

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        Models().load_file(str(tmp_path / "many"))
    finally:
        sys.setprofile(before)
    assert calls > 1_000
