"""Remove credentials from errors, and from the SDK's logs.

Credentials that were passed as an option, or seen in a signed request, are known by value, because stores echo them.
Others are found by the name before them (a header in a canonical request, a field in a response of STS). The SDK logs
such data when debugging, and a log has more readers than the credentials have holders.
"""

from __future__ import annotations

import re
from collections import deque

from asyncrec.storage.http import Redacting

# Values of every client in this process. Refreshed credentials replace the oldest, which have long expired.
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
    """Remember a credential, which is then removed from all texts. Very short values would match inside words."""
    if value and len(value) >= 8 and value not in _known:
        _known.append(value)


def redact(text: str) -> str:
    for value in _known:
        text = text.replace(value, "***")
    return text


def strike(text: str) -> str:
    """Do the same as `redact`, and remove values in the place of a credential, such as a service's new credentials."""
    return redact(_BY_NAME.sub(r"\1***", text))


_redacting = Redacting(strike)


def quieten() -> None:
    """Remove credentials from the SDK's loggers. Repeated calls have no effect."""
    _redacting.install(_LOGGERS)
