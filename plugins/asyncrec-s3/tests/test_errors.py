"""The store's errors are mapped to a single tree of errors, with the store's own messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import botocore.exceptions
import pytest
from asyncrec_s3.errors import CompletingError, Condition, translate

from asyncrec.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)


def answer(status: int, code: str, **details: Any) -> Exception:
    response: Any = {"Error": {"Code": code, **details}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "Operation")


@pytest.mark.parametrize("details", [{}, {"Message": None}, {"Message": ""}])
def test_error_without_message_shows_its_code(details: dict[str, Any]) -> None:
    error = translate(answer(404, "NoSuchKey", **details), "get s3://crawl/x")
    assert type(error) is ObjectNotFoundError
    assert str(error) == "get s3://crawl/x: NoSuchKey (HTTP 404)"


def test_proxy_password_demand_raises_permission_error() -> None:
    error = translate(answer(407, ""), "put s3://crawl/x")
    assert type(error) is StoragePermissionError
    assert str(error).startswith("put s3://crawl/x: HTTP 407; the proxy requires a password")


@pytest.mark.parametrize(
    ("condition", "kind"), [("none", ObjectExistsError), ("same", ObjectChangedError), ("", StorageError)]
)
def test_failed_condition_maps_to_error_of_requested_condition(condition: Condition, kind: type[StorageError]) -> None:
    """If the request had no condition, this response does not mean that an object exists."""
    error = translate(answer(412, "PreconditionFailed", Message="no"), "put s3://crawl/x", condition=condition)
    assert type(error) is kind


def test_completion_in_progress_has_own_error() -> None:
    words = "This multipart completion is already in progress"
    assert type(translate(answer(500, "InternalError", Message=words), "complete")) is CompletingError
    assert type(translate(answer(500, "InternalError", Message="oh"), "complete")) is TransientStorageError


def test_retry_after_is_parsed_as_seconds_or_date() -> None:
    def waits(value: str) -> float | None:
        response: Any = {
            "Error": {"Code": "SlowDown"},
            "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": value}},
        }
        error = translate(botocore.exceptions.ClientError(response, "Operation"), "get s3://crawl/x")
        assert isinstance(error, TransientStorageError)
        return error.retry_after

    assert waits("12") == 12.0
    assert waits(" 1.5 ") == 1.5
    assert waits("") is None
    assert waits("soon") is None
    later = waits(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None
    assert 90 < later <= 100
    assert waits(format_datetime(datetime.now(UTC) - timedelta(seconds=100), usegmt=True)) == 0.0


@pytest.mark.parametrize("words", ["[SSL: WRONG_VERSION_NUMBER] wrong version number", "[SSL] record layer failure"])
def test_error_explains_endpoint_without_tls(words: str) -> None:
    for error in (botocore.exceptions.SSLError(endpoint_url="https://127.0.0.1:8302", error=words), OSError(words)):
        told = translate(error, "put s3://crawl/x")
        assert type(told) is StorageError
        assert "http://" in str(told)
        assert "authority" not in str(told)
