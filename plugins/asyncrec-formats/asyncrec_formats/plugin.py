"""The plugin's hook, which returns the formats. pyarrow and warcio are imported when a file is read or written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrec.plugins import Converted, Encoder, Format, SourceFile, hookimpl

if TYPE_CHECKING:
    from asyncrec import Schema


@asynccontextmanager
async def _open_parquet(file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
    module = await _loaded("parquet")
    async with module.open_parquet(file) as reading:
        yield reading


@asynccontextmanager
async def _open_warc(file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
    module = await _loaded("warc")
    async with module.open_warc(file) as reading:
        yield reading


async def _loaded(name: str) -> Any:
    """Import a module of this package in a thread, because importing its library takes tenths of a second."""
    from asyncrec.storage import in_thread

    return await in_thread(import_module, f"{__package__}.{name}")


def _warc_schema() -> Schema:
    from asyncrec.pages import PAGE

    return PAGE


def _warc_encoder(name: str, schema: Mapping[str, Any] | None) -> Encoder:
    from .warc_writing import WarcEncoder

    return WarcEncoder(name, schema)


def _parquet_encoder(name: str, schema: Mapping[str, Any] | None) -> Encoder:
    from .parquet import ParquetEncoder

    assert schema is not None, "needs_schema is set"
    return ParquetEncoder(schema)


@hookimpl
def asyncrec_formats() -> Iterable[Format]:
    return [
        Format(
            name="parquet",
            suffixes=(".parquet",),
            open=_open_parquet,
            encoder=_parquet_encoder,
            needs_schema=True,
        ),
        Format(
            name="warc",
            suffixes=(".warc", ".warc.gz"),
            open=_open_warc,
            schema=_warc_schema,
            encoder=_warc_encoder,
        ),
    ]
