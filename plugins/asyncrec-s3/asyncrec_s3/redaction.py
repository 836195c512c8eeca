"""Credentials are struck out of errors, and of what the SDK logs.

What was given as an option or was seen in a signed request is known by value, for stores echo it; what is only known
by its place (a header in a canonical request, a field in an answer of STS) is found by its name. The SDK logs such
things when debugging, and a log is read by more people than hold the credentials.
"""

from __future__ import annotations

import re
from collections import deque

from asyncrec.storage.http import Redacting

# Values of every client of this process; refreshed credentials push out the oldest, long expired.
_known: deque[str] = deque(maxlen=64)

_BY_NAME = re.compile(
    r"""(?ix) ( (?: x-amz-(?:security|s3session)-token | x-amz-server-side-encryption-customer-key | authorization
                  | secretaccesskey | secret_?key | sessiontoken | accesstoken | token | accesskeyid | credential )
                ['"]? (?: \s*[:=]\s* | > ) b?['"]? )  (?: AWS4-HMAC-SHA256\ [^'"\n]* | [^\s'"<,&]+ )"""
)
_LOGGERS = (
    "aiobotocore.credentials", "aiobotocore.tokens", "aiobotocore.utils", "botocore.auth", "botocore.credentials",
    "botocore.endpoint", "botocore.parsers", "botocore.regions", "botocore.tokens", "botocore.utils",
)  # fmt: skip


def remember(value: str | None) -> None:
    """Remember a credential, which from now on nothing shows. Very short ones would be found within words."""
    if value and len(value) >= 8 and value not in _known:
        _known.append(value)


def redact(text: str) -> str:
    for value in _known:
        text = text.replace(value, "***")
    return text


def strike(text: str) -> str:
    """As `redact`, and what stands where a credential would: the machine's services send some that nobody knows yet."""
    return redact(_BY_NAME.sub(r"\1***", text))


_redacting = Redacting(strike)


def quieten() -> None:
    """Let nothing of a credential through the SDK's loggers. Repeated, it does nothing."""
    _redacting.install(_LOGGERS)
