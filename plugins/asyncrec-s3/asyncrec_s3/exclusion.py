"""Whether a store honours ``If-None-Match: *`` when a multipart upload is completed: tried, with two small objects.

AWS and SeaweedFS do; Ceph 16 and older do so with a put alone. Documents say little of it, and answers to work
that is worth something show it too late.
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
# Seconds for removing what was made.
_CLEAN_SECONDS = 10.0


async def excludes_parts(bucket: Bucket, key: str) -> bool:
    """Complete an upload to ``key`` over an object that is there. Nothing is left of either.

    Raises:
        StorageError: it cannot be tried.
    """

    async def repeat(request: str, **params: Any) -> dict[str, Any]:
        what = bucket.what("try an exclusive upload to", key)
        return await bucket.repeat(partial(bucket.call, request, what, Key=key, **params), what)

    upload_id = (await repeat("create_multipart_upload")).get("UploadId")
    try:
        part = await repeat("upload_part", UploadId=upload_id, PartNumber=1, Body=_NEW, **Digest(_NEW, "md5").params)
        await repeat("put_object", Body=_THERE, **Digest(_THERE, "md5").params)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        # Of an answer that was lost the repeated request says nothing; what is there decides.
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
