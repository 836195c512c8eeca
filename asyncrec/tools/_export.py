"""`export` writes records to a file of another format, for `asyncrec.tools.convert`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ExampleError
from asyncrec.example._schema import Schema
from asyncrec.plugins._kinds import Encoder, Format
from asyncrec.storage._base import Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.tools._head import FoundRecord, RecordStream
from asyncrec.tools._parameters import Progress
from asyncrec.tools._schema import infer_schema
from asyncrec.tools._selection import Selection

_OF_BATCH = re.compile(r"record ([\d,]+) of the batch")
# Records are passed to an encoder as soon as this many, or this many bytes in total, have accumulated.
_BATCH = 1024
_BATCH_BYTES = 64 << 20


async def export(selection: Selection, store: Storage, key: str, to: Format, progress: Progress) -> int:
    """Write all records to the file ``key``, and return the number of records.

    Raises:
        ObjectExistsError: the file exists.
        SchemaError, DecodeError: a record does not fit the format; nothing is written.
    """
    schema = selection.schema
    if to.needs_schema and schema is None:
        inferred, _ = await infer_schema(selection)
        schema = (inferred or Schema({})).to_json()
    assert to.encoder is not None, "the format can be written"
    encoder = await in_thread(to.encoder, key, schema)
    count = 0
    async with store.open_sink(key, exclusive=True) as sink, AsyncExitStack() as stack:
        chunks = ChunkWriter(sink)
        held: list[FoundRecord] = []

        async def send(data: bytes) -> None:
            if data:
                await chunks.write([data])

        seen, total = 0, selection.bytes
        async for found in RecordStream(selection, (), stack):
            held += found
            while len(held) >= _BATCH or (held and sum(len(each.data) for each in held) >= _BATCH_BYTES):
                batch, held = held[:_BATCH], held[_BATCH:]
                await send(await in_thread(_encode, encoder, batch))
            count += len(found)
            seen += sum(len(each.data) for each in found)
            progress(min(seen, total), total)
        if held:
            await send(await in_thread(_encode, encoder, held))
        await send(await in_thread(encoder.finish))
        await chunks.finish()
    return count


def _encode(encoder: Encoder, records: Sequence[FoundRecord]) -> bytes:
    """Return the encoded bytes of some records. Blocks.

    Raises:
        SchemaError, DecodeError: a record does not fit the format; the message contains its number in the selection.
    """
    try:
        return encoder.encode([each.data for each in records])
    except ExampleError as error:
        match = _OF_BATCH.search(str(error))
        if match is None:
            raise
        record = records[int(match[1].replace(",", ""))]
        told = f"record {record.number:,} (in {record.path})"
        raise type(error)(str(error).replace(match[0], told)) from None
