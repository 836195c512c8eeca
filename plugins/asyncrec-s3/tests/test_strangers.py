"""Responses that are not from S3, or are unlike those of S3."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from asyncrec_s3.bucket import Bucket
from asyncrec_s3.client import Known
from asyncrec_s3.options import Options
from botocore.exceptions import ClientError

from asyncrec.errors import ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import RetryPolicy

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=2, base=0.0)
THERE = {"ContentLength": 5, "ETag": '"abc"', "LastModified": datetime(2026, 1, 1, tzinfo=UTC)}


class Client:
    """Returns prepared responses for each kind of request in order, and repeats the last one."""

    def __init__(self, **answers: Any) -> None:
        self._answers = {name: list(given) for name, given in answers.items()}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        async def ask(**params: Any) -> Any:
            self.asked.append((name, params))
            answers = self._answers[name]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask


class Connection:
    def __init__(self, client: Client, *, is_aws: bool) -> None:
        self.client = client
        self.known = Known(is_aws=is_aws)


def bucket_of(client: Client, *, is_aws: bool = False) -> Bucket:
    return Bucket(Connection(client, is_aws=is_aws), Options(bucket="bucket"))  # type: ignore[arg-type]  # likewise


def answered(status: int, **headers: str) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers}}


def not_found(**headers: str) -> ClientError:
    return ClientError({"Error": {"Code": "404"}, **answered(404, **headers)}, "HeadObject")  # type: ignore[typeddict-item]


ID = {"x-amz-request-id": "1"}


@pytest.mark.parametrize(
    ("request_name", "entries", "marks"),
    [
        ("list_objects_v2", "Contents", {}),
        ("list_objects_v2", "Contents", {"NextContinuationToken": "same"}),
        ("list_multipart_uploads", "Uploads", {}),
        ("list_multipart_uploads", "Uploads", {"NextKeyMarker": "same", "NextUploadIdMarker": "same"}),
        ("list_multipart_uploads", "Uploads", {"NextKeyMarker": "", "NextUploadIdMarker": ""}),
        ("list_parts", "Parts", {"NextPartNumberMarker": 7}),
    ],
)
async def test_listing_without_next_page_marker_is_rejected(
    request_name: str, entries: str, marks: dict[str, Any]
) -> None:
    """The page says that it is truncated, but has no marker, or the same marker as the request."""
    numbers = itertools.count()
    page = {"IsTruncated": True, **marks}
    client = Client(**{request_name: [{**page, entries: [{"Key": "a"}]}, {**page, entries: [{"Key": "b"}]}]})
    bucket = bucket_of(client)
    listing = {"Contents": bucket.objects("", ""), "Uploads": bucket.uploads(""), "Parts": bucket.parts("key", "id")}[
        entries
    ]
    with pytest.raises(StorageError, match="announces another page but does not say where it starts") as raised:
        async for _ in listing:
            assert next(numbers) < 2
    assert type(raised.value) is StorageError


@pytest.mark.parametrize("name", ["list_objects_v2", "list_multipart_uploads", "list_parts"])
async def test_listing_without_is_truncated_is_rejected(name: str) -> None:
    bucket = bucket_of(Client(**{name: [answered(200)]}))
    with pytest.raises(TransientStorageError, match="the response is not from S3, because it has no IsTruncated"):
        await bucket.call(name, "list")


@pytest.mark.parametrize("gone", [True, False])
async def test_deletion_with_unexpected_status_is_verified_by_lookup(
    gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stores and proxies respond this way."""
    client = Client(delete_object=[answered(200)], head_object=[not_found() if gone else THERE])
    bucket = bucket_of(client)
    repeat = bucket.repeat
    monkeypatch.setattr(bucket, "repeat", lambda operation, what: repeat(operation, what, AT_ONCE))
    if gone:
        await bucket.delete("key")
    else:
        with pytest.raises(TransientStorageError, match="the object still exists"):
            await bucket.delete("key")
    assert [name for name, _ in client.asked] == ["delete_object", "head_object"] * (1 if gone else 2)


async def test_abort_repeats_after_status_200() -> None:
    gone = ClientError({"Error": {"Code": "NoSuchUpload"}, **answered(404, **ID)}, "AbortMultipartUpload")  # type: ignore[typeddict-item]
    client = Client(abort_multipart_upload=[answered(200), gone])
    await bucket_of(client).abort("key", "id")
    assert len(client.asked) == 2


@pytest.mark.parametrize("is_aws", [True, False])
async def test_404_without_request_id_is_treated_as_proxy_response(is_aws: bool) -> None:
    """A response to HEAD has no body. A store other than AWS must have sent request ids in an earlier response."""
    client = Client(head_object=[THERE | answered(200, **ID), not_found(), not_found(**ID)])
    bucket = bucket_of(client, is_aws=is_aws)
    await bucket.head("key", shown="key")
    with pytest.raises(TransientStorageError, match="perhaps from a proxy"):
        await bucket.head("key", shown="key", policy=RetryPolicy(attempts=1))
    with pytest.raises(ObjectNotFoundError):
        await bucket.head("key", shown="key")


async def test_404_of_store_without_request_ids_is_accepted() -> None:
    bucket = bucket_of(Client(head_object=[THERE | answered(200), not_found()]))
    await bucket.head("key", shown="key")
    with pytest.raises(ObjectNotFoundError):
        await bucket.head("key", shown="key")
