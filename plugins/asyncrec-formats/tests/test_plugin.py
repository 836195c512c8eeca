"""Both formats pass the conformance kit."""

from __future__ import annotations

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq

import asyncrec
from asyncrec.pages import PAGE, page
from asyncrec.testing import FormatConformance


class TestParquet(FormatConformance):
    plugin = "asyncrec_formats.plugin"
    name = "parquet"

    def rows(self) -> list[dict[str, object]]:
        return [{"label": n, "text": b"text %d" % n * (n + 1), "emb": [n / 2, n + 0.5]} for n in range(20)]

    def records(self) -> list[bytes]:
        return [asyncrec.encode_example(row) for row in self.rows()]

    def content(self) -> bytes:
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(self.rows()), out, row_group_size=7)
        return out.getvalue()


class TestWarc(FormatConformance):
    plugin = "asyncrec_formats.plugin"
    name = "warc"

    def records(self) -> list[bytes]:
        return [
            PAGE.encode(
                page(
                    f"http://x/{n}",
                    b"page %d" % n * (n + 1),
                    date="2026-11-21T00:00:00Z",
                    type="resource",
                    record_id=f"<urn:uuid:{n}>",
                    content_type="text/plain",
                )
            )
            for n in range(5)
        ]

    def content(self) -> bytes:
        return b"".join(map(member, range(5)))


def member(n: int) -> bytes:
    body = b"page %d" % n * (n + 1)
    head = b"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:uuid:%d>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
    more = b"WARC-Target-URI: http://x/%d\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n"
    return gzip.compress(head % n + more % (n, len(body), body))
