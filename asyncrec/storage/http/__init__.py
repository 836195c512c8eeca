"""What storage backends over HTTP have in common: for authors of plugins.

asyncrec's own backends use it, so its names change when they need it: **no promise of stability covers them**, also
not within a minor version. A plugin that uses them pins the version of asyncrec, or copies what it needs. What every
backend needs is in `asyncrec.storage`, and stable.

    RangedSource, LongAnswer, StreamSlots             a source that asks for ranges, or reads on in one answer
    StraightBody                                      the body of an answer of aiohttp, received without copies
    PartTasks, PartSlots, PartBuffers, fill_part      the parts of an upload: their tasks, their room, their memory
    SlicedBody, crc64nvme                             the body of a request, that does not hold the loop; its checksum
    parse_retry_after, parse_content_range, parse_http_date    headers of an answer
    SharedClients, trusting                           one client for many storages; the authorities that it trusts
    check_options                                     options, by name and type
    connection_fault                                  the error for a connection that failed
    Redacting                                         a filter for what other people's clients log
"""

from __future__ import annotations

from asyncrec.storage.http._clients import Redacting, SharedClients, check_options, connection_fault, trusting
from asyncrec.storage.http._messages import (
    SlicedBody,
    crc64nvme,
    parse_content_range,
    parse_http_date,
    parse_retry_after,
)
from asyncrec.storage.http._parts import PartBuffers, PartSlots, PartTasks, fill_part
from asyncrec.storage.http._ranged_source import LongAnswer, RangedSource, StreamSlots
from asyncrec.storage.http._straight_body import StraightBody

__all__ = [
    "LongAnswer",
    "PartBuffers",
    "PartSlots",
    "PartTasks",
    "RangedSource",
    "Redacting",
    "SharedClients",
    "SlicedBody",
    "StraightBody",
    "StreamSlots",
    "check_options",
    "connection_fault",
    "crc64nvme",
    "fill_part",
    "parse_content_range",
    "parse_http_date",
    "parse_retry_after",
    "trusting",
]
