"""Test, with two small objects, whether a store honours ``If-None-Match: *`` when it completes a multipart upload.

AWS and SeaweedFS honour it. Ceph 16 and older honour it only for a put. Few stores document this, and the response to a
real upload would reveal it too late.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from asyncrec.errors import ObjectExistsError
from asyncrec.storage import shielded

from .bucket import Bucket
from .errors import UploadGoneError
from .parts import Digest

_THERE, _NEW = b"x", b"another"
# The time limit in seconds for removing the test objects.
_CLEAN_SECONDS = 10.0


async def excludes_parts(bucket: Bucket, key: str) -> bool:
    """Try to complete an upload over an existing object ``key``. Return whether the store rejects it. Remove both.

    Raises:
        StorageError: the test failed.
    """

    async def repeat(request: str, **params: Any) -> dict[str, Any]:
        what = bucket.what("try an exclusive upload to", key)
        return await bucket.repeat(partial(bucket.call, request, what, Key=key, **params), what)

    upload_id = (await repeat("create_multipart_upload")).get("UploadId")
    try:
        part = await repeat("upload_part", UploadId=upload_id, PartNumber=1, Body=_NEW, **Digest(_NEW, "md5").params)
        await repeat("put_object", Body=_THERE, **Digest(_THERE, "md5").params)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        # If a response was lost, the response to the repeated request is inconclusive, so look at the object.
        with suppress(ObjectExistsError, UploadGoneError):
            await repeat("complete_multipart_upload", UploadId=upload_id, MultipartUpload=parts, IfNoneMatch="*")
        honoured = (await bucket.head(key, shown=key)).info.size == len(_THERE)
    finally:
        with shielded(_CLEAN_SECONDS):
            if upload_id is not None:
                await bucket.abort(key, upload_id)
            await bucket.delete(key)
    bucket.known.learn_exclusion(parts=honoured)
    return honoured
