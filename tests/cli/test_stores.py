"""The commands whose behaviour depends on the store, run on S3 and GCS test servers."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))

from store_servers import gcs_server, s3_proxy, s3_store  # noqa: F401, I001  # fixtures; it finds what follows
from cli_data import Run, write_data
from fake_gcs import FakeGcs, Fault
from s3_proxy import Proxy
from s3_store import Store


@dataclass
class Place:
    """A store with the test data below ``url``. ``refuse()`` makes it respond to every request with 403."""

    name: str
    url: str
    refuse: Callable[[], None]


@pytest.fixture(params=["s3", "gcs"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    """Set up a store that the command finds as users' stores are found: through the environment."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_")) or name in ("S3_ENDPOINT", "STORAGE_EMULATOR_HOST"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    folder = f"{request.param}-{random.Random().randrange(1 << 40):x}"
    if request.param == "s3":
        store: Store = request.getfixturevalue("s3_store")
        proxy: Proxy = request.getfixturevalue("s3_proxy")
        proxy.reset()
        for name, value in {
            "AWS_ACCESS_KEY_ID": store.access_key,
            "AWS_SECRET_ACCESS_KEY": store.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
            "AWS_ENDPOINT_URL": proxy.endpoint,
        }.items():
            monkeypatch.setenv(name, value)

        def refuse() -> None:
            proxy.plan = lambda request: "403"

        place = Place("s3", f"s3://{store.bucket}/{folder}", refuse)
    else:
        server: FakeGcs = request.getfixturevalue("gcs_server")
        server.reset()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)

        def refuse() -> None:
            server.plan = lambda kind, n: Fault("status", 403)

        place = Place("gcs", f"gs://bucket/{folder}", refuse)
    anyio.run(write_data, place.url)
    yield place
    if request.param == "s3":
        proxy.reset()


@pytest.mark.slow
def test_reading_and_copying_commands_work_on_any_store(run: Run, place: Place) -> None:
    report = json.loads(run("info", place.url, "--json").ok())
    assert (report["kind"], report["records"], report["shards"]) == ("folder", 65, 7)
    assert "text 0 " in run("head", f"{place.url}/pages", "-n", "1").ok()
    assert run("count", f"{place.url}/zipped").ok() == "30\n"
    assert "ok: every checksum in" in run("verify", place.url).ok()
    assert "30 records read" in run("report", f"{place.url}/pages", "-o", f"{place.url}/pages.html").ok()
    assert "9 objects copied" in run("copy", f"{place.url}/pages", "local/pages").ok()
    assert "ok: every checksum in" in run("verify", "local/pages").ok()
    assert "9 objects copied" in run("copy", "local/pages", f"{place.url}/again/pages").ok()
    assert "ok: every checksum in" in run("verify", f"{place.url}/again").ok()
    assert "exclusive creation" in run("doctor", f"{place.url}/doctored").ok()
    said = run("uploads", place.url).ok()
    assert "0 unfinished" in said if place.name == "s3" else "cannot list unfinished uploads" in said
    assert "30 records in 2 shards" in run("reshard", f"{place.url}/pages", f"{place.url}/two", "-n", "2").ok()


@pytest.mark.slow
def test_writing_commands_work_on_any_store(run: Run, place: Place, tmp_path: Path) -> None:
    url = place.url
    assert '"label": 2' in run("cat", f"{url}/pages", "--key", "key 5", "--json").ok()
    assert "from the manifest" in run("schema", f"{url}/zipped").ok()
    assert "3 created" in run("index", f"{url}/zipped", "--force").ok()
    assert "5 intact records" in run("repair", f"{url}/plain.tfrecord", f"{url}/whole.tfrecord").ok()
    assert "nothing to recover" in run("recover", f"{url}/pages").ok()
    assert "30 records" in run("convert", f"{url}/pages", f"{url}/lines.jsonl.gz").ok()
    assert "30 records from 1 file" in run("convert", f"{url}/lines.jsonl.gz", f"{url}/back").ok()
    assert "30 records" in run("convert", f"{url}/pages", f"{url}/table.parquet").ok()
    assert "30 records from 1 file" in run("convert", f"{url}/table.parquet", f"{url}/again").ok()
    for name in ("cat", "dog"):
        for number in range(5):
            path = tmp_path / "files" / name / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} {number}")
    assert "0 cat, 1 dog" in run("from-folder", "files", f"{url}/split").ok()
    Path("table.csv").write_text("kind,n\n" + "a,1\nb,2\n" * 5)
    assert "0 a, 1 b" in run("from-csv", "table.csv", f"{url}/rows", "--label", "kind").ok()
    assert run("count", f"{url}/split/train").ok() == "8\n"


def test_unfinished_uploads_of_s3_are_listed_and_removed(
    run: Run, place: Place, request: pytest.FixtureRequest
) -> None:
    if place.name == "gcs":
        assert "cannot list unfinished uploads" in run("uploads", place.url, "--remove").ok()
        return
    store: Store = request.getfixturevalue("s3_store")
    key = place.url.partition(f"{store.bucket}/")[2] + "/begun"
    store.client.create_multipart_upload(Bucket=store.bucket, Key=key)
    # moto dates uploads to 2010.
    assert "1 unfinished, 0 removed" in run("uploads", place.url, "--remove", "--older-than", "9000d").ok()
    assert "1 unfinished, 1 removed" in run("uploads", place.url, "--remove").ok()
    assert store.unfinished(key) == []


@pytest.mark.slow(but=["head", "s3-copy"])
@pytest.mark.parametrize("command", ["info", "head", "count", "verify", "report", "copy"])
def test_missing_or_forbidden_path_exits_with_3(run: Run, place: Place, command: str) -> None:
    target = ["local/"] if command == "copy" else []
    missing = run(command, f"{place.url}/nowhere/nothing", *target)
    assert missing.code == 3, missing
    assert "nowhere/nothing" in missing.err
    place.refuse()
    refused = run(command, f"{place.url}/pages", *target)
    assert refused.code == 3, refused
    assert refused.err.startswith("asyncrec: ")


def test_doctor_reports_missing_permissions(run: Run, place: Place) -> None:
    place.refuse()
    result = run("doctor", place.url)
    assert result.code == 3
    assert "FAILED" in result.out
