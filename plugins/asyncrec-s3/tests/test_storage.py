"""What S3Storage promises beyond the kit: bounds, sharing, where it may be used, unfinished uploads."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import crc32c
import pytest
from asyncrec_s3 import client as clients
from asyncrec_s3 import publication
from asyncrec_s3.dates import parse_date
from asyncrec_s3.parts import base64_of_crc
from asyncrec_s3.plugin import open_s3
from asyncrec_s3.shared import Slots
from asyncrec_s3.storage import S3Storage

import asyncrec
from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage._base import UnfinishedUploads

pytestmark = pytest.mark.anyio

CHUNK = 5 << 20
Open = Callable[..., AbstractAsyncContextManager[S3Storage]]


@pytest.fixture
def open_storage(store: Any, proxy: Any, prefix: str) -> Open:
    @asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[S3Storage]:
        options = {"endpoint_url": proxy.endpoint, "chunk_size": CHUNK} | options
        async with open_s3(f"s3://{store.bucket}/{prefix}", **options) as storage:
            assert isinstance(storage, S3Storage)
            yield storage

    return open_


async def test_found_by_its_scheme(store: Any, proxy: Any, prefix: str) -> None:
    """Installed, it answers to s3:// wherever asyncrec takes a path."""
    root = f"s3://{store.bucket}/{prefix}"
    async with asyncrec.open_storage(root, endpoint_url=proxy.endpoint) as storage:
        await storage.put("x", b"here")
    assert store.get(f"{prefix}/x") == b"here"


def checksums_sent(proxy: Any, operation: str) -> list[str]:
    """For each such request so far, in the order of keys and parts: which checksums came with its body."""
    names = {"Content-MD5": "md5", "x-amz-checksum-crc32c": "crc32c"}
    sent = [request for request in proxy.requests if request.operation == operation]
    return ["+".join(short for name, short in names.items() if name in request.headers) for request in sent]


async def test_a_store_that_compares_crc32c_is_sent_no_other(open_storage: Open, proxy: Any) -> None:
    """MD5 costs thirty times as much. It is sent until an answer has shown that CRC32C is compared."""
    proxy.echoes = True
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("first", os.urandom(3 * CHUNK))
        assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "crc32c", "crc32c"]
        await storage.put("small", b"small")
        assert checksums_sent(proxy, "PutObject") == ["crc32c"]
        async with open_storage() as other:
            await other.put("second", os.urandom(2 * CHUNK))
        assert checksums_sent(proxy, "UploadPart")[3:] == ["crc32c", "crc32c"], "what one learns the others know"


async def test_a_store_that_does_not_know_crc32c_is_sent_md5(open_storage: Open, proxy: Any) -> None:
    proxy.echoes = False
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("large", os.urandom(3 * CHUNK))
        await storage.put("small", b"small")
    assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "md5", "md5"]
    assert checksums_sent(proxy, "PutObject") == ["md5"]


async def test_a_store_that_refuses_what_it_does_not_know_is_sent_md5(open_storage: Open, proxy: Any) -> None:
    proxy.plan = lambda request: "501" if "x-amz-checksum-crc32c" in request.headers else None
    data = os.urandom(3 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("large", data)
        assert await storage.get("large") == data
    assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "md5", "md5", "md5"]


async def test_a_store_that_compares_crc32c_no_more_is_sent_md5_again(open_storage: Open, proxy: Any) -> None:
    """The part whose CRC32C nobody compared is held against its ETag; a wrong one is uploaded again."""
    proxy.echoes = True
    wrong: list[str] = []

    def plan(request: Any) -> str | None:
        # The second part: the store forgets what it knew, and answers with an ETag of something else.
        if request.operation == "UploadPart" and "Content-MD5" not in request.headers and not wrong:
            proxy.echoes = False
            wrong.append(request.key)
            return "etag"
        return None

    proxy.plan = plan
    data = os.urandom(3 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("large", data)
        assert await storage.get("large") == data
    assert wrong
    assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "crc32c", "crc32c", "md5"]


async def test_a_wrong_etag_of_a_part_is_asked_for_again(open_storage: Open, proxy: Any) -> None:
    """Without an MD5 nothing tells that it is wrong but the store's refusal to put the parts together."""
    proxy.echoes = True
    wrong: list[str] = []

    def plan(request: Any) -> str | None:
        if request.operation == "UploadPart" and "Content-MD5" not in request.headers and not wrong:
            wrong.append(request.key)
            return "etag"
        return None

    proxy.plan = plan
    data = os.urandom(3 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        info = await storage.put("large", data)
        assert await storage.get("large") == data
        assert await storage.head("large") == info
    assert wrong
    assert proxy.operations().count("ListParts") == 1


async def test_of_a_store_that_encrypts_no_part_is_sent_twice_for_its_etag(
    open_storage: Open, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it encrypts has another ETag than the MD5 of what was sent, though it may look like one."""
    proxy.echoes = False
    data = os.urandom(2 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        call = storage.shared.bucket.call

        async def encrypted(name: str, what: str, **params: Any) -> dict[str, Any]:
            answer = await call(name, what, **params)
            if name == "upload_part":
                answer |= {"ETag": '"00000000000000000000000000000000"', "ServerSideEncryption": "aws:kms"}
            return answer

        monkeypatch.setattr(storage.shared.bucket, "call", encrypted)
        await storage.put("large", data)
        monkeypatch.undo()
        assert await storage.get("large") == data
    assert proxy.operations().count("UploadPart") == 2


async def test_one_attempt_is_one_request(open_storage: Open, proxy: Any) -> None:
    """The SDK repeats nothing: the back-off of the core is the only one."""
    proxy.plan = lambda request: "500"
    async with open_storage() as storage:
        with pytest.raises(TransientStorageError, match="looking"):
            await storage.shared.bucket.call("head_object", "looking", Key="x")
        with pytest.raises(TransientStorageError, match="putting"):
            await storage.shared.bucket.call("put_object", "putting", Key="x", Body=b"x")
    assert proxy.operations() == ["HeadObject", "PutObject"]


async def test_dates_are_not_parsed_in_the_way_that_holds_the_loop(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Any] = []

    def parse(value: Any) -> Any:
        parsed.append(value)
        return parse_date(value)

    monkeypatch.setattr(clients, "parse_date", parse)
    async with open_storage(connect_timeout=9.75) as storage:  # a client of its own
        await storage.put("x", b"data")
        parsed.clear()
        assert [info.key async for info in storage.list_objects()] == ["x"]
    assert parsed


async def test_the_checksum_of_the_whole_goes_with_its_completion_where_the_store_compares_it(
    open_storage: Open, proxy: Any
) -> None:
    """And its size; elsewhere neither, for other stores refuse what they do not know."""
    data = os.urandom(2 * CHUNK)
    proxy.echoes = False
    async with open_storage(connect_timeout=9.5) as storage:
        await storage.put("md5", data)
    proxy.echoes = True
    async with open_storage(connect_timeout=9.25, checksum="crc32c") as storage:
        await storage.put("crc32c", data)
    md5, crc = [request.headers for request in proxy.requests if request.operation == "CompleteMultipartUpload"]
    assert crc["x-amz-checksum-crc32c"] == base64_of_crc(crc32c.crc32c(data))
    assert crc["x-amz-mp-object-size"] == str(len(data))
    assert not {"x-amz-checksum-crc32c", "x-amz-mp-object-size"} & set(md5)


async def test_a_sink_takes_chunks_and_one_that_is_shorter_at_the_end(open_storage: Open) -> None:
    async with open_storage() as storage:
        with pytest.raises(ValueError, match="a chunk has"):
            async with storage.open_sink("x") as sink:
                await sink.send([bytes(CHUNK + 1)])
        with pytest.raises(ValueError, match="a chunk has"):
            async with storage.open_sink("x") as sink:
                await sink.send([b""])
        with pytest.raises(ValueError, match="only the last of an object fewer"):
            async with storage.open_sink("x") as sink:
                await sink.send([b"short"])
                await sink.send([b"another"])
        assert [info async for info in storage.list_objects()] == []


async def test_a_sink_of_which_a_send_was_cancelled_takes_and_publishes_nothing_more(open_storage: Open) -> None:
    """A chunk is missing: what came behind it would take its place."""
    async with open_storage(max_concurrency=1) as storage:
        with pytest.raises(StorageError, match="not published, because writing it failed or was cancelled"):
            async with storage.open_sink("x") as sink:
                await storage.shared.slots.acquire(1)
                with anyio.move_on_after(0.01) as scope:
                    await sink.send([bytes(CHUNK)])
                assert scope.cancelled_caught
                storage.shared.slots.release(1)
                for late in (sink.send([b"behind"]), sink.flush([])):
                    with pytest.raises(StorageError, match="only be abandoned"):
                        await late
        assert [info async for info in storage.list_objects()] == []


@pytest.mark.parametrize(
    ("url", "aws"),
    [
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://s3.amazonaws.com.evil.example", False),
        ("https://minio.example:9000", False),
        ("unknown", False),
    ],
)
def test_only_the_endpoints_of_aws_are_known_to_honour_everything(url: str, aws: bool) -> None:
    events = SimpleNamespace(unregister=lambda *args: None, register=lambda *args: None)
    connection = clients.Connection(SimpleNamespace(meta=SimpleNamespace(endpoint_url=url, events=events)))
    expected, known = True if aws else None, connection.known
    assert connection.is_aws is aws
    assert (known.crc32c, known.excludes_puts, known.excludes_parts) == (expected, expected, expected)


@pytest.mark.parametrize(
    ("answer", "crc", "etag", "expected"),
    [
        ({"ETag": '"e"', "ChecksumCRC32C": base64_of_crc(5)}, 5, "e", True),
        ({"ETag": '"e"', "ChecksumCRC32C": base64_of_crc(6)}, 5, "e", False),
        ({"ETag": "", "ChecksumCRC32C": base64_of_crc(5)}, 5, None, False),
        ({"ETag": '"e"'}, None, "e", True),
        ({"ETag": '"other"'}, None, "e", False),
        ({}, None, None, False),
    ],
)
def test_an_answer_to_a_put_confirms_what_it_names(
    answer: dict[str, Any], crc: int | None, etag: str | None, expected: bool
) -> None:
    """By the checksum where one was sent along, else by the ETag; without an ETag it confirms nothing."""
    content = publication.Content(size=1, crc32c=crc, etag=etag, certain=False)
    assert publication._confirmed(answer, content) is expected


def test_an_object_of_which_no_answer_named_the_etag_has_one_that_is_none() -> None:
    content = publication.Content(size=1, crc32c=None, etag=None, certain=False)
    made = publication.Publication(SimpleNamespace(), "p/x", "x", "writer", exclusive=False)  # type: ignore[arg-type]  # not asked
    assert made._of_answer({}, content).etag == "unknown"
    assert made._of_answer({"ETag": '"e"'}, content).etag == "e"


@pytest.mark.parametrize(
    "options",
    [{"checksum": "crc32c"}, {"payload_signing": True}, {"addressing_style": "path"}, {"region": "eu-west-1"}],
)
async def test_options_reach_the_store(open_storage: Open, proxy: Any, options: dict[str, Any]) -> None:
    """With each, small and large objects are written and read; the proxy checks every checksum it is sent."""
    data = os.urandom(CHUNK + 10)
    async with open_storage(**options) as storage:
        await storage.put("small", data[:10])
        info = await storage.put("large", data)
        assert await storage.get("large") == data
        assert await storage.head("large") == info
    sent = [r.headers for r in proxy.requests if r.operation in ("UploadPart", "PutObject")]
    assert len(sent) == 3
    for headers in sent:
        assert ("Content-MD5" in headers) == (options.get("checksum") != "crc32c")
        assert (headers["X-Amz-Content-SHA256"] != "UNSIGNED-PAYLOAD") == bool(options.get("payload_signing"))
        assert "Expect" not in headers
        if region := options.get("region"):
            assert f"/{region}/s3/" in headers["Authorization"]


async def test_back_pressure(open_storage: Open, proxy: Any) -> None:
    """While the store takes nothing, the writer waits with four parts on their way, and not a fifth copied."""
    taken = 0
    proxy.plan = lambda request: "hold" if request.operation == "UploadPart" else None

    async def write(storage: S3Storage, key: str) -> None:
        nonlocal taken
        async with storage.open_sink(key) as sink:
            for _ in range(4):
                await sink.send([bytes(CHUNK)])
                taken += 1

    async with open_storage() as storage:
        async with anyio.create_task_group() as group:
            group.start_soon(write, storage, "x")
            group.start_soon(write, storage, "y")
            await until(lambda: proxy.operations().count("UploadPart") == 4)
            await until(lambda: storage.shared.slots.waiting)
            assert taken == 4
            proxy.release()
        assert taken == 8


async def test_short_objects_do_not_wait_for_each_other(open_storage: Open) -> None:
    """One task may hold more sinks than there are slots, each with all its bytes, and close them in any order."""
    async with open_storage(max_concurrency=1) as storage:
        sinks = [storage.open_sink(f"{n}") for n in range(5)]
        opened = [await sink.__aenter__() for sink in sinks]
        for sink in opened:
            await sink.send([b"short"])
        for sink in sinks:
            await sink.__aexit__(None, None, None)
        assert [info.key async for info in storage.list_objects()] == ["0", "1", "2", "3", "4"]


async def test_large_parts_take_their_share() -> None:
    """A part of several chunks takes as many slots, one longer than all takes all; none is lost on cancellation."""
    slots = Slots(4, 10)
    assert [slots.of(size) for size in (1, 10, 11, 40, 400)] == [1, 1, 2, 4, 4]
    await slots.acquire(3)
    with anyio.move_on_after(0):
        await slots.acquire(2)
    slots.release(3)
    with anyio.fail_after(1):
        await slots.acquire(4)


async def test_idle_sources_hold_no_connection(open_storage: Open, proxy: Any, store: Any, prefix: str) -> None:
    """A hundred of them, begun and waiting, over five connections."""
    store.put(f"{prefix}/x", bytes(100))
    async with open_storage(max_connections=5) as storage:
        sources = [storage.open_source("x") for _ in range(100)]
        opened = [await source.__aenter__() for source in sources]
        for source in opened:
            assert await source.receive(50) == bytes(50)
        assert proxy.in_flight == 0
        assert proxy.connections <= 5
        for source in opened:
            assert await source.receive(51) == bytes(50)
        for source in sources:
            await source.__aexit__(None, None, None)


async def test_clients_are_shared_and_closed(open_storage: Open, proxy: Any) -> None:
    """Storages that agree share one, closed with the last of them; another region is another client."""
    async with open_storage() as one:
        async with open_storage(chunk_size=2 * CHUNK) as two, open_storage(region="eu-west-1") as other:
            mine = [storage.shared.bucket._connection.client for storage in (one, two, other)]
            assert mine[0] is mine[1]
            assert mine[0] is not mine[2]
            await two.put("x", b"x")
        await one.put("y", b"y")
    assert not clients._shared.get()
    await until(lambda: proxy.connections == 0)


async def test_opened_at_once_one_client_is_made(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    make = clients._make

    async def counting(*args: Any) -> Any:
        nonlocal made
        made += 1
        return await make(*args)

    monkeypatch.setattr(clients, "_make", counting)

    async def work() -> None:
        async with open_storage() as storage:
            await storage.put("x", b"x")

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(work)
    assert made == 1


async def test_another_event_loop_is_refused(open_storage: Open, anyio_backend: str) -> None:
    """Used from a loop it was not opened on, it raises instead of hanging."""

    async def use(storage: S3Storage) -> None:
        await storage.put("x", b"x")

    async with open_storage() as storage:
        for backend in ("asyncio", "trio"):
            with pytest.raises(RuntimeError, match="another event loop"):
                await anyio.to_thread.run_sync(lambda backend=backend: anyio.run(use, storage, backend=backend))


async def test_after_a_fork_it_is_refused(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has the parent's connections, and must not speak on them."""
    async with open_storage() as storage:
        await storage.put("x", b"x")
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: -1)
            for operation in (storage.head, storage.get, storage.delete, lambda key: storage.put(key, b"y")):
                with pytest.raises(RuntimeError, match="another process"):
                    await operation("x")
            with pytest.raises(RuntimeError, match="another process"):
                storage.list_objects()


async def test_closed_it_says_so(open_storage: Open) -> None:
    async with open_storage() as storage:
        source = storage.open_source("x")
    with pytest.raises(anyio.ClosedResourceError):
        await storage.put("x", b"x")
    with pytest.raises(anyio.ClosedResourceError):
        await source.__aenter__()
    with pytest.raises(TypeError, match="open one in each"):
        pickle.dumps(storage)


async def test_unfinished_uploads_are_listed_and_removed(open_storage: Open, store: Any, prefix: str) -> None:
    """Under a prefix; one that is gone already is no error."""
    for name in ("a/1", "a/2", "b/1"):
        store.client.create_multipart_upload(Bucket=store.bucket, Key=f"{prefix}/{name}")
    async with open_storage() as storage:
        assert isinstance(storage, UnfinishedUploads)
        found = [upload async for upload in storage.list_unfinished("a/")]
        assert sorted(upload.key for upload in found) == ["a/1", "a/2"]
        assert all(upload.etag and upload.modified.tzinfo for upload in found)
        for upload in [*found, *found]:
            await storage.remove_unfinished(upload)
    assert store.unfinished(prefix) == [f"{prefix}/b/1"]
    leftover = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=prefix)["Uploads"][0]
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=leftover["Key"], UploadId=leftover["UploadId"])


async def test_a_missing_profile_is_said_by_name(open_storage: Open) -> None:
    with pytest.raises(StoragePermissionError, match="nobody"):
        async with open_storage(profile="nobody"):
            pass


async def test_no_credentials_is_said_with_a_remedy(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with open_storage() as storage:
        with pytest.raises(StoragePermissionError, match="anonymous=True"):
            await storage.put("x", b"x")


async def test_a_profile_gives_credentials(
    open_storage: Open, proxy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Found as the SDK finds them, in its configuration files."""
    (tmp_path / "config").write_text("[profile two]\naws_access_key_id = AKIAOFPROFILETWO\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    proxy.plan = lambda request: "403"
    async with open_storage(profile="two") as storage:
        with pytest.raises(StoragePermissionError):
            await storage.put("x", b"x")
    assert "AKIAOFPROFILETWO" in proxy.requests[0].headers["Authorization"]


async def test_anonymous_signs_nothing(open_storage: Open, proxy: Any) -> None:
    proxy.plan = lambda request: "403"
    async with open_storage(anonymous=True) as storage:
        with pytest.raises(StoragePermissionError):
            await storage.head("x")
    assert "Authorization" not in proxy.requests[0].headers


async def until(condition: Callable[[], Any]) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110  # it comes true in another thread
            await anyio.sleep(0.005)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
async def test_cancelled_by_asyncio_itself(
    open_storage: Open, proxy: Any, store: Any, prefix: str, operation: str
) -> None:
    """``task.cancel()`` knows no shield: the object is still whole or absent, and no upload is left."""
    async with open_storage() as storage:
        proxy.plan = lambda request: "hold" if request.operation == operation else None
        sink = storage.open_sink("x")

        async def write() -> None:
            async with sink as opened:
                await opened.send([bytes(CHUNK)])
                await opened.send([b"end"])

        task = asyncio.create_task(write())
        await until(lambda: operation in proxy.operations())
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        proxy.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        published = sink.published is not None  # type: ignore[attr-defined]  # the sink is its own context
        assert published == (operation == "CompleteMultipartUpload")
        assert await anyio.to_thread.run_sync(store.get, f"{prefix}/x") == (
            bytes(CHUNK) + b"end" if published else None
        )
        assert await anyio.to_thread.run_sync(store.unfinished, prefix) == []


@pytest.mark.parametrize("how", ["verify", "AWS_CA_BUNDLE", "ca_bundle"])
@pytest.mark.parametrize(("kind", "words"), [("missing", "No such file"), ("no bundle", "PEM"), ("folder", "director")])
async def test_authorities_that_cannot_be_used_are_named_at_once(
    proxy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, kind: str, words: str
) -> None:
    """And by whom they were named: no request is sent, and nothing is tried again."""
    path = tmp_path / "authorities.pem"
    if kind == "no bundle":
        path.write_text("no certificate")
    if kind == "folder":
        path.mkdir()
    if how == "AWS_CA_BUNDLE":
        monkeypatch.setenv(how, str(path))
    if how == "ca_bundle":
        (tmp_path / "config").write_text(f"[default]\nca_bundle = {path}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {"verify": str(path)} if how == "verify" else {}
    with pytest.raises(StorageError, match=rf"authorities.pem, the authorities named by .*{how}.*{words}") as caught:
        async with open_s3("s3://crawl", endpoint_url=proxy.endpoint, **options):
            pass
    assert not isinstance(caught.value, TransientStorageError)
    assert proxy.requests == []
