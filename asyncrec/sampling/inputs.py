"""`Inputs`: the shards that a stream reads, each in its store, and reading records of them again by their origins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

from asyncrec.errors import DatasetError
from asyncrec.framing.compression import CompressionOptions, parse_compression
from asyncrec.records.position import Position
from asyncrec.records.reader import RecordReader, open_reader_at
from asyncrec.sampling.origin import Origin
from asyncrec.storage.base import Storage
from asyncrec.storage.registry import located
from asyncrec.storage.url import redact, scheme_of, split_path

__all__ = ["Compression", "Input", "Inputs", "inputs_at", "parse_reading_compression"]

Compression = Literal["auto", "", "GZIP", "ZLIB"]


class Input(NamedTuple):
    """One shard. ``path`` is for messages."""

    path: str
    storage: Storage
    key: str


class Inputs:
    """Numbered shards, opened as they are needed."""

    def __init__(self, inputs: Sequence[Input], compression: Compression) -> None:
        self._inputs = inputs
        self._compression = compression

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def reads_cost_waiting(self) -> bool:
        return any(each.storage.read_ahead > 0 for each in self._inputs)

    def path(self, source: int) -> str:
        return self._inputs[source].path

    async def open(self, source: int, position: Position, *, chunk_size: int, inflate_bytes: int) -> RecordReader:
        """A reader without a task of its own: what reads ahead is for the stream to say, not for each shard."""
        path, storage, key = self._inputs[source]
        return await open_reader_at(
            storage,
            key,
            position,
            path=path,
            compression=self._compression,
            chunk_size=chunk_size,
            inflate_bytes=inflate_bytes,
            read_ahead=0,
        )

    async def read_again(self, origins: Sequence[Origin]) -> list[bytes]:
        """The records that stand at these origins, in their order.

        Raises:
            DatasetError: a shard ends before: it is not the one the origins are of.
        """
        wanted: dict[int, dict[int, Position]] = {}
        for source, position in origins:
            wanted.setdefault(source, {})[position.record] = position
        found: dict[tuple[int, int], bytes] = {}
        for source, positions in wanted.items():
            await self._read_positions(source, sorted(positions.values(), key=lambda each: each.record), found)
        return [found[source, position.record] for source, position in origins]

    async def _read_positions(
        self, source: int, positions: list[Position], found: dict[tuple[int, int], bytes]
    ) -> None:
        reader: RecordReader | None = None
        batch = None
        try:
            for position in positions:
                number = position.record
                if batch is not None and number < batch.first + len(batch.records):
                    found[source, number] = batch.records[number - batch.first]
                    continue
                if reader is not None:
                    await reader.aclose()
                    reader = None
                reader = await self.open(source, position, chunk_size=_AGAIN_BYTES, inflate_bytes=_AGAIN_BYTES)
                batch = await reader.next_batch()
                if batch is None:
                    raise DatasetError(
                        f"{self.path(source)} has no record {number}: it is shorter than when the state was taken"
                    )
                found[source, number] = batch.records[number - batch.first]
        finally:
            if reader is not None:
                await reader.aclose()


# Read for one record that is wanted again; its neighbours often are, too.
_AGAIN_BYTES = 64 << 10


@asynccontextmanager
async def inputs_at(
    paths: Sequence[str | PathLike[str]],
    *,
    compression: Compression,
    storage: Storage | None,
    storage_options: Mapping[str, Any] | None,
) -> AsyncIterator[Inputs]:
    """The shards at ``paths``; each bucket or folder is opened once, and shards when they are read."""
    async with AsyncExitStack() as stack:
        opened: dict[str, Storage] = {}
        inputs: list[Input] = []
        for path in paths:
            shown = redact(fspath(path))
            if storage is not None and storage_options is None:
                inputs.append(Input(shown, storage, fspath(path)))
                continue
            root, key = split_path(path)
            # Any scheme may have a factory of its own, which splits paths in its way: no root is shared unless sure.
            shared = "://" in root or not scheme_of(path)
            if shared and root in opened:
                inputs.append(Input(shown, opened[root], key))
                continue
            place = located(path, storage=storage, storage_options=storage_options)
            store, its_key = await stack.enter_async_context(place)
            inputs.append(Input(shown, store, its_key))
            if shared and its_key == key:
                opened[root] = store
        yield Inputs(inputs, compression)


def parse_reading_compression(value: str | int | CompressionOptions | None) -> Compression:
    return "auto" if value == "auto" else parse_compression(value).type
