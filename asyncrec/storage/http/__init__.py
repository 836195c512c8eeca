"""Code shared by storage backends over HTTP, for authors of plugins.

asyncrec's own backends use these names, which change when the backends need it. They have **no promise of stability**,
not even within a minor version. A plugin that uses them should pin asyncrec's version or copy the code. The names that
every backend needs are in `asyncrec.storage`, and are stable.

    RangedSource, LongAnswer, StreamSlots             a source that requests ranges, or reads on in one response
    StraightBody                                      the body of an aiohttp response, received without copies
    PartTasks, PartSlots, PartBuffers, fill_part      the parts of an upload: their tasks, slots and memory
    SlicedBody, crc64nvme                             a request body that does not block the loop; its checksum
    parse_retry_after, parse_content_range, parse_http_date    headers of a response
    SharedClients, trusting                           one client for many storages; its trusted authorities
    check_options                                     options, by name and type
    connection_fault                                  the error for a connection that failed
    Redacting                                         a filter for the logs of other libraries' clients
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
