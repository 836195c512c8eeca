"""Remove credentials from errors and from the SDK's logs.

Credentials passed as options, or found in signed requests, are remembered by value, because stores echo them. Other
credentials are recognised by the preceding name (a header in a canonical request, or a field in a response of STS). The
SDK logs such data at the debug level, and a log has more readers than may have the credentials.
"""

from __future__ import annotations

import re
from collections import deque

from asyncrec.storage.http import Redacting

# The credentials of all clients in this process. Refreshed ones displace the oldest, which have long expired.
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
    """Remember a credential in order to remove it from texts. Ignore short values, which could match parts of words."""
    if value and len(value) >= 8 and value not in _known:
        _known.append(value)


def redact(text: str) -> str:
    for value in _known:
        text = text.replace(value, "***")
    return text


def strike(text: str) -> str:
    """Redact the text, and also remove values that follow a credential's name, such as newly issued credentials."""
    return redact(_BY_NAME.sub(r"\1***", text))


_redacting = Redacting(strike)


def quieten() -> None:
    """Make the SDK's loggers remove credentials. Repeated calls have no effect."""
    _redacting.install(_LOGGERS)
