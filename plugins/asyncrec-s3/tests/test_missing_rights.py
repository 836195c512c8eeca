"""The messages of errors about missing permissions."""

from __future__ import annotations

from typing import Any

import botocore.exceptions
import pytest
from asyncrec_s3.errors import translate

from asyncrec.errors import StoragePermissionError

LISTING = "without permission to list the bucket, S3 also gives this response for a missing object"


@pytest.mark.parametrize(
    ("status", "code", "words", "listing"),
    [
        (403, "403", "Forbidden", True),
        (403, "AccessDenied", "", True),
        (403, "AccessDenied", "Access Denied", False),
        (401, "401", "Forbidden", False),
        (401, "401", "", False),
    ],
)
def test_permission_error_without_explanation_hints_at_missing_object(
    status: int, code: str, words: str, listing: bool
) -> None:
    answer: Any = {"Error": {"Code": code, "Message": words}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = translate(botocore.exceptions.ClientError(answer, "HeadObject"), "head s3://crawl/x")
    assert type(error) is StoragePermissionError
    assert (LISTING in str(error)) is listing
