"""What the store says becomes one tree of errors, in words that are there."""

from __future__ import annotations

from typing import Any

import botocore.exceptions
import pytest
from asyncrec_s3.errors import CompletingError, Condition, translate

from asyncrec.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
)


def answer(status: int, code: str, **details: Any) -> Exception:
    response: Any = {"Error": {"Code": code, **details}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "Operation")


@pytest.mark.parametrize("details", [{}, {"Message": None}, {"Message": ""}])
def test_an_answer_without_a_message_is_told_by_its_code(details: dict[str, Any]) -> None:
    error = translate(answer(404, "NoSuchKey", **details), "get s3://crawl/x")
    assert type(error) is ObjectNotFoundError
    assert str(error) == "get s3://crawl/x: NoSuchKey (HTTP 404)"


@pytest.mark.parametrize(
    ("condition", "kind"), [("none", ObjectExistsError), ("same", ObjectChangedError), ("", StorageError)]
)
def test_a_failed_condition_means_what_was_asked(condition: Condition, kind: type[StorageError]) -> None:
    """An answer to a request without one is no sign that an object is there."""
    error = translate(answer(412, "PreconditionFailed", Message="no"), "put s3://crawl/x", condition=condition)
    assert type(error) is kind


def test_a_completion_in_progress_is_told_from_other_faults() -> None:
    words = "This multipart completion is already in progress"
    assert type(translate(answer(500, "InternalError", Message=words), "complete")) is CompletingError
    assert type(translate(answer(500, "InternalError", Message="oh"), "complete")) is TransientStorageError
