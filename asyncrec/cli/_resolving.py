"""``cat --resolve``, which shows revisits with the bodies that they refer to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from asyncrec.cli._standard import STANDARD
from asyncrec.cli._values import opened
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools._head import FoundRecord

    Resolve: TypeAlias = Callable[[Sequence[FoundRecord]], Awaitable[list[FoundRecord]]]

# The number of bodies in memory at the same time.
AT_ONCE = 16


@asynccontextmanager
async def resolving(path: str, storage_option: list[str] | None) -> AsyncIterator[Resolve]:
    """Open the data set of the bodies, and yield a function that resolves its records.

    Raises:
        UsageError: the path is stdin.
    """
    from asyncrec import Schema, open_dataset, pages
    from asyncrec._concurrency.tasks import in_thread

    if path == STANDARD:
        raise UsageError("--resolve looks up the bodies in a data set; pass the folder and name of a data set")
    async with open_dataset(path, **opened(path, storage_option)) as dataset:
        known = dataset.schema
        schema = Schema({**(known.features if known else {}), **pages.PAGE.features}, allow_extra=True)

        async def resolve(found: Sequence[FoundRecord]) -> list[FoundRecord]:
            decoded = await in_thread(lambda: [schema.decode(each.data) for each in found])
            whole = await pages.resolve(dataset, [page for page in decoded if pages.is_revisit(page)])
            encoded = iter(await in_thread(lambda: [schema.encode(page) for page in whole]))
            return [
                replace(each, data=next(encoded)) if pages.is_revisit(page) else each
                for each, page in zip(found, decoded, strict=True)
            ]

        yield resolve
