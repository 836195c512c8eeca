"""Errors from the store and from the HTTP client are mapped to a single tree of errors."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest
from asyncrec_gcs.errors import Condition, of_answer, of_transport, strike

from asyncrec.errors import (
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)


def body(words: str = "words", reason: str = "reason") -> bytes:
    return json.dumps({"error": {"message": words, "errors": [{"reason": reason}]}}).encode()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_temporary_status_maps_to_transient_error(status: int) -> None:
    assert type(of_answer(status, {}, body(), "what", write=True)) is TransientStorageError


@pytest.mark.parametrize(
    ("status", "reason", "condition", "error"),
    [
        (400, "invalid", "", StorageError),
        (401, "authError", "", StoragePermissionError),
        (403, "forbidden", "", StoragePermissionError),
        (403, "rateLimitExceeded", "", TransientStorageError),
        (404, "notFound", "", ObjectNotFoundError),
        (411, "required", "", StorageError),
        (412, "conditionNotMet", "none", ObjectExistsError),
        (412, "conditionNotMet", "same", ObjectChangedError),
        (412, "conditionNotMet", "", StorageError),
        (400, "invalid", "none", StorageError),
        (400, "invalid", "same", StorageError),
        (418, "teapot", "", StorageError),
    ],
)
def test_status_maps_to_its_error_kind(
    status: int, reason: str, condition: Condition, error: type[StorageError]
) -> None:
    raised = of_answer(status, {}, body("some words", reason), "gs://bucket/key: reading", condition=condition)
    assert type(raised) is error
    assert str(raised).startswith(f"gs://bucket/key: reading: HTTP {status} {reason}: some words")


@pytest.mark.parametrize("condition", ["", "none"])
@pytest.mark.parametrize("status", [400, 412])
def test_rejected_checksum_maps_to_integrity_error(status: int, condition: Condition) -> None:
    """Google responds with 400 and its testbench with 412, which here does not mean that the object exists."""
    words = 'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C "BBBBBB==".'
    assert type(of_answer(status, {}, body(words), "what", write=True, condition=condition)) is IntegrityError


def test_read_error_mentioning_checksum_is_not_integrity_error() -> None:
    assert type(of_answer(400, {}, body("a word of crc32c"), "what")) is StorageError


def test_forbidden_read_hints_at_missing_object() -> None:
    """Without the right to list, Google responds with 403 for a missing object; a write would not look for one."""
    assert "GCS also gives this response for a missing object" in str(of_answer(403, {}, body(), "what"))
    assert "GCS also gives this response for a missing object" not in str(
        of_answer(403, {}, body(), "what", write=True)
    )


def test_error_names_first_single_word_reason() -> None:
    errors = [{"reason": "<b>bold</b>"}, {}, {"reason": "invalidParameter"}, {"reason": "other"}]
    told = json.dumps({"error": {"message": "some\n  words " * 90, "errors": errors}}).encode()
    assert str(of_answer(418, {}, told, "what")) == f"what: HTTP 418 invalidParameter: {('some words ' * 90)[:300]}"


@pytest.mark.parametrize("text", [b"", b"<html>", b"[]", b'{"error": 5}', b'{"error": {"errors": 7}}', b"\xff"])
def test_error_without_explanation_shows_status(text: bytes) -> None:
    assert str(of_answer(418, {}, text, "what", write=False)) == "what: HTTP 418"


def test_retry_after_is_parsed_as_seconds_or_date() -> None:
    def waits(value: str) -> float | None:
        error = of_answer(429, {"Retry-After": value}, b"", "what", write=False)
        assert isinstance(error, TransientStorageError)
        return error.retry_after

    assert waits("12") == 12.0
    assert waits("soon") is None
    later = waits(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None
    assert 90 < later <= 100
    assert waits(format_datetime(datetime.now(UTC) - timedelta(seconds=100), usegmt=True)) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "https://storage.googleapis.com/upload/storage/v1/b/x/o?uploadType=resumable&upload_id=S3CRET&x=1",
        "Authorization: Bearer S3CRET",
        "token ya29.S3CRET is bad",
        '{"access_token": "S3CRET"}',
        "refresh_token=S3CRET",
        "the token S3CRET",
    ],
)
def test_secrets_are_redacted(text: str) -> None:
    assert "S3CRET" not in strike(text, "S3CRET")
    assert "***" in strike(text, "S3CRET")


def test_connection_error_shows_only_its_type() -> None:
    error = of_transport(
        aiohttp.ClientOSError(104, "Can not write request body for https://x/?upload_id=S3CRET"), "what"
    )
    assert type(error) is TransientStorageError
    assert str(error) == "what: ClientOSError (errno 104)"
    assert type(of_transport(TimeoutError(), "what")) is TransientStorageError
    assert str(of_transport(TimeoutError(), "what")) == "what: TimeoutError"
    for unusable in (aiohttp.InvalidURL("http://S3CRET"), aiohttp.NonHttpUrlClientError("ftp://S3CRET")):
        assert type(of_transport(unusable, "what")) is StorageError
        assert str(of_transport(unusable, "what")).endswith("the endpoint is not a usable URL; check it")


def test_untrusted_certificate_raises_permanent_error() -> None:
    key = aiohttp.client_reqrep.ConnectionKey("host", 443, True, True, None, None, None)
    error = of_transport(aiohttp.ClientConnectorCertificateError(key, ssl.SSLCertVerificationError()), "what")
    assert type(error) is StorageError
    assert "certificate" in str(error)
