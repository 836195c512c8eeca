"""`Bucket`: its requests to the store, and which responses it trusts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from asyncrec_s3 import exclusion
from asyncrec_s3.bucket import Bucket, is_encrypted
from asyncrec_s3.client import Known
from asyncrec_s3.direct import DirectGets
from asyncrec_s3.options import Options

from asyncrec.errors import ObjectChangedError, StorageError, TransientStorageError

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 40
NOTHING: dict[str, Any] = {"ResponseMetadata": {"HTTPStatusCode": 204}}


class Body:
    """A response body: blocks in order, and then perhaps an error."""

    def __init__(self, blocks: Iterable[bytes], error: Exception | None = None) -> None:
        self._blocks = list(blocks)
        self._error = error
        self.closed = False

    async def read(self, size: int) -> bytes:
        if not self._blocks and self._error is not None:
            raise self._error
        return self._blocks.pop(0) if self._blocks else b""

    async def aclose(self) -> None:
        self.closed = True


class Client:
    """A stand-in for the SDK's client that returns one response and records its calls."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def get_object(self, **params: Any) -> dict[str, Any]:
        self.asked.append(params)
        return self.answer

    head_object = get_object


class Connection:
    is_aws = False

    def __init__(self, client: Client) -> None:
        self.client = client
        self.known = Known(is_aws=False)

    def gets(self, bucket: str) -> DirectGets:
        return DirectGets(self.client, None, bucket, "tests")


def bucket_of(*blocks: bytes, error: Exception | None = None, **answer: Any) -> tuple[Bucket, Client]:
    client = Client(**({"ETag": '"abc"', "Body": Body(blocks, error)} | answer))
    return Bucket(Connection(client), Options(bucket="bucket")), client  # type: ignore[arg-type]  # as much of it as is asked


async def test_read_requests_one_range_of_one_version() -> None:
    """The store checks the version before it sends a byte; as in HTTP, the range includes its last byte."""
    bucket, client = bucket_of(DATA[100:300], ContentRange="bytes 100-299/10240")
    assert b"".join(await (await bucket.download("key", 100, 300, "abc")).whole()) == DATA[100:300]
    assert client.asked == [{"Bucket": "bucket", "Key": "key", "Range": "bytes=100-299", "IfMatch": '"abc"'}]
    assert client.answer["Body"].closed


@pytest.mark.parametrize(
    ("blocks", "answer", "error", "words"),
    [
        ([DATA[:201]], {"ContentRange": "bytes 0-199/10240"}, StorageError, "sent more than the 200 bytes"),
        ([DATA[:150], DATA[150:201]], {"ContentRange": "bytes 0-199/10240"}, StorageError, "sent more than the 200"),
        ([DATA], {}, StorageError, "sent more than the 200"),
        (
            [],
            {"ContentRange": "bytes 0-199/10240"},
            TransientStorageError,
            "the response ended early: 200 of 200 bytes are missing",
        ),
        ([DATA[:200]], {"ContentRange": "bytes 10-209/10240"}, TransientStorageError, "sent another range"),
        ([DATA[:200]], {"ContentRange": "bytes 01-200/10240"}, TransientStorageError, "sent another range"),
        ([DATA[:200]], {"ETag": '"other"'}, ObjectChangedError, "its etag is no longer abc"),
        ([DATA[:200]], {"ETag": ""}, ObjectChangedError, "its etag is no longer abc"),
    ],
    ids=["too much", "too much in blocks", "all", "nothing", "elsewhere", "nearly", "other", "no etag"],
)
async def test_download_rejects_mismatching_response_and_closes_body(
    blocks: list[bytes], answer: dict[str, Any], error: type[StorageError], words: str
) -> None:
    bucket, client = bucket_of(*blocks, **answer)
    with pytest.raises(StorageError, match=words) as caught:
        await (await bucket.download("key", 0, 200, "abc")).whole()
    assert type(caught.value) is error
    assert "s3://bucket/key" in str(caught.value)
    assert client.answer["Body"].closed


async def test_download_without_range_support_works_from_start_only() -> None:
    """The store sends the entire object for any range, which is the same if reading starts at byte 0."""
    bucket, _ = bucket_of(DATA)
    assert b"".join(await (await bucket.download("key", 0, len(DATA), "abc")).whole()) == DATA
    bucket, client = bucket_of(DATA[:200])
    with pytest.raises(StorageError, match="does not support range requests") as caught:
        await (await bucket.download("key", 1, 201, "abc")).whole()
    assert type(caught.value) is StorageError
    assert client.answer["Body"].closed


async def test_download_returns_bytes_received_before_break() -> None:
    answer = {"ContentRange": "bytes 0-199/10240"}
    bucket, _ = bucket_of(DATA[:50], error=ConnectionResetError(), **answer)
    assert b"".join(await (await bucket.download("key", 0, 200, "abc")).whole()) == DATA[:50]
    bucket, _ = bucket_of(DATA[:50], **answer)
    assert b"".join(await (await bucket.download("key", 0, 200, "abc")).whole()) == DATA[:50]
    bucket, client = bucket_of(error=ConnectionResetError(), **answer)
    with pytest.raises(TransientStorageError, match="get s3://bucket/key"):
        await (await bucket.download("key", 0, 200, "abc")).whole()
    assert client.answer["Body"].closed


@pytest.mark.parametrize("missing", ["ContentLength", "ETag", "LastModified"])
async def test_head_repeats_for_incomplete_response(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"ContentLength": 5, "ETag": '"abc"', "LastModified": datetime(2026, 1, 1, tzinfo=UTC)}
    bucket, client = bucket_of(**{**answer, missing: None})
    attempts = 0

    async def twice(operation: Any, what: str, policy: Any) -> Any:
        nonlocal attempts
        attempts += 1
        with pytest.raises(TransientStorageError, match=f"the response is not from S3, because it has no {missing}"):
            await operation()
        client.answer = answer
        return await operation()

    monkeypatch.setattr(bucket, "repeat", twice)
    found = await bucket.head("prefix/key", shown="key")
    assert (found.info.key, found.info.size, found.info.etag, found.writer) == ("key", 5, "abc", None)
    assert attempts == 1
    assert client.asked[0] == {"Bucket": "bucket", "Key": "prefix/key", "ChecksumMode": "ENABLED"}


def test_store_capability_holds_until_contradicted() -> None:
    """Different programs may respond for the store, so the weakest one counts."""
    bucket, _ = bucket_of()
    assert (bucket.checksum, bucket.known.excludes_puts, bucket.known.excludes_parts) == ("both", None, None)
    bucket.known.learn_crc32c(True)
    bucket.known.learn_exclusion(puts=True)
    assert (bucket.checksum, bucket.known.excludes_puts, bucket.known.excludes_parts) == ("crc32c", True, None)
    bucket.known.learn_exclusion(parts=True)
    bucket.known.learn_exclusion(parts=False)
    bucket.known.learn_exclusion(parts=True)
    bucket.known.learn_crc32c(False)
    bucket.known.learn_crc32c(True)
    assert (bucket.checksum, bucket.known.excludes_puts, bucket.known.excludes_parts) == ("md5", True, False)
    bucket.known.learn_exclusion(puts=False)
    bucket.known.learn_exclusion(puts=True)
    assert bucket.known.excludes_puts is False


def test_is_encrypted_detects_kms_and_customer_keys() -> None:
    assert not is_encrypted({})
    assert not is_encrypted({"ServerSideEncryption": "AES256"})
    assert is_encrypted({"ServerSideEncryption": "aws:kms"})
    assert is_encrypted({"ServerSideEncryption": "aws:kms:dsse"})
    assert is_encrypted({"SSECustomerAlgorithm": "AES256"})


class Probed:
    """A store that is probed for exclusive completions; the request named by ``fails`` fails."""

    def __init__(self, fails: str = "", *, honours: bool = True) -> None:
        self.fails, self.honours = fails, honours
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.object: bytes | None = None
        self.upload: bytes | None = None

    async def _asked(self, name: str, params: dict[str, Any]) -> None:
        self.log.append((name, params))
        if name == self.fails:
            raise PermissionError(name)

    async def create_multipart_upload(self, **params: Any) -> dict[str, Any]:
        self.upload = b""
        await self._asked("create", params)
        return {"UploadId": "id"}

    async def upload_part(self, **params: Any) -> dict[str, Any]:
        await self._asked("part", params)
        self.upload = bytes(params["Body"])
        return {"ETag": '"part"'}

    async def put_object(self, **params: Any) -> dict[str, Any]:
        await self._asked("put", params)
        self.object = bytes(params["Body"])
        return {"ETag": '"put"'}

    async def complete_multipart_upload(self, **params: Any) -> dict[str, Any]:
        await self._asked("complete", params)
        if not self.honours or self.object is None:
            self.object, self.upload = self.upload, None
            return {"ETag": '"completed-1"'}
        from botocore.exceptions import ClientError

        raise ClientError(
            {"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": {"HTTPStatusCode": 412}},
            "CompleteMultipartUpload",
        )

    async def head_object(self, **params: Any) -> dict[str, Any]:
        await self._asked("head", params)
        assert self.object is not None
        return {"ContentLength": len(self.object), "ETag": '"x"', "LastModified": datetime(2026, 1, 1, tzinfo=UTC)}

    async def abort_multipart_upload(self, **params: Any) -> dict[str, Any]:
        await self._asked("abort", params)
        self.upload = None
        return NOTHING

    async def delete_object(self, **params: Any) -> dict[str, Any]:
        await self._asked("delete", params)
        self.object = None
        return NOTHING


@pytest.mark.parametrize("honours", [True, False])
async def test_exclusion_probe_completes_over_object_and_removes_both(honours: bool) -> None:
    store = Probed(honours=honours)
    bucket = Bucket(Connection(store), Options(bucket="bucket"))  # type: ignore[arg-type]  # as much of it as is asked
    assert await exclusion.excludes_parts(bucket, "probe") is honours
    assert bucket.known.excludes_parts is honours
    assert (store.object, store.upload) == (None, None)
    assert [name for name, _ in store.log] == ["create", "part", "put", "complete", "head", "abort", "delete"]
    assert {params["Key"] for _, params in store.log} == {"probe"}
    complete = dict(store.log)["complete"]
    assert (complete["IfNoneMatch"], complete["UploadId"]) == ("*", "id")
    number = dict(store.log)["part"]["PartNumber"]
    assert complete["MultipartUpload"] == {"Parts": [{"PartNumber": number, "ETag": '"part"'}]}


@pytest.mark.parametrize("fails", ["part", "put", "complete", "head"])
async def test_failed_probe_learns_no_exclusion_and_cleans_up(fails: str) -> None:
    store = Probed(fails)
    bucket = Bucket(Connection(store), Options(bucket="bucket"))  # type: ignore[arg-type]  # likewise
    with pytest.raises(StorageError, match="s3://bucket/probe"):
        await exclusion.excludes_parts(bucket, "probe")
    assert bucket.known.excludes_parts is None
    assert (store.object, store.upload) == (None, None)
