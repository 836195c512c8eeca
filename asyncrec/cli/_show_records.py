"""The options of ``head``, ``cat``, ``tail`` and ``sample`` that select records and their format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from asyncrec.cli._completion import complete_condition
from asyncrec.cli._options import feature_option, run_async
from asyncrec.cli._record_formats import Printer
from asyncrec.cli._standard import STANDARD
from asyncrec.cli._values import opened
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools import Where
    from asyncrec.tools._head import FoundRecord

    Resolve: TypeAlias = Callable[[Sequence[FoundRecord]], Awaitable[list[FoundRecord]]]

_Format = Literal["auto", "example", "json", "hex", "text", "raw"]
Format = Annotated[_Format, typer.Option("-f", "--format", help="Output format; auto shows the features of Examples.")]
# For commands where -f means something else, such as tail.
LongFormat = Annotated[_Format, typer.Option("--format", help="Output format; auto shows the features of Examples.")]
Features = Annotated[
    list[str] | None, feature_option("Show only this feature. Can be repeated.", "--feature", metavar="NAME")
]
Newest = Annotated[
    str | None,
    feature_option(
        "Of the records with the same key, use only the newest: the one with the largest value of this feature, a "
        "number or text.",
        metavar="NAME",
    ),
]
Wheres = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help=(
            "Select records that match NAME=VALUE; also != < <= > >=, 'NAME in A,B' and 'NAME contains TEXT'. If "
            "repeated, all conditions must match."
        ),
        autocompletion=complete_condition,
    ),
]


@dataclass(frozen=True, slots=True)
class RecordView:
    """The options for showing records: the format, the requested features, and whether hex is shown in full."""

    format: str
    features: list[str] | None
    whole: bool

    def printer(self, path: str = "", schema: Mapping[str, Any] | None = None) -> Printer:
        """Return a printer for these options.

        Raises:
            UsageError: the format is unknown, cannot be shown on a terminal, or cannot show several features.
            ValueError: the schema does not have a requested feature.
        """
        only = frozenset(self.features) if self.features else None
        known = (schema or {}).get("features")
        if only is not None and isinstance(known, Mapping) and not (schema or {}).get("allow_extra"):
            for name in sorted(only - set(known)):
                from asyncrec.example._by_name import unknown_feature

                raise unknown_feature(name, known, path)
        return Printer(self.format, schema=schema, only=only, whole=self.whole)


def conditions(wheres: list[str] | None) -> list[Where]:
    """Return the conditions parsed from the values of ``--where``."""
    from asyncrec import tools

    return [tools.Where.parse(text) for text in wheres or ()]


def show_records(
    path: str,
    view: RecordView,
    *,
    wheres: list[str] | None,
    limit: int | None,
    storage_option: list[str] | None,
    resolve: bool = False,
) -> None:
    """Print the first ``limit`` records that match every condition, or all of them if ``limit`` is `None`.

    With ``resolve``, revisits are printed with the bodies to which they refer.
    """
    from asyncrec import tools

    where = conditions(wheres)
    view.printer()  # reject invalid options before any file is opened

    async def run() -> None:
        left = limit
        async with AsyncExitStack() as stack:
            whole = await stack.enter_async_context(resolving(path, storage_option)) if resolve else None
            stream = await stack.enter_async_context(
                tools.open_records(path, where=where, **opened(path, storage_option))
            )
            printer = view.printer(path, stream.selection.schema)
            if left == 0:
                return
            async for records in stream:
                if whole is None:
                    show_all(printer, records[:left])
                else:
                    shown = records[:left]
                    for at in range(0, len(shown), AT_ONCE):
                        show_all(printer, await whole(shown[at : at + AT_ONCE]))
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        break
            printer.end(path)

    run_async(run)


def show_all(printer: Printer, records: Sequence[FoundRecord]) -> None:
    """Print ``records`` with ``printer``."""
    for found in records:
        printer.show(found)


def show_record(
    path: str,
    view: RecordView,
    *,
    record: int | None,
    key: str | None,
    newest: str | None,
    all_versions: bool,
    storage_option: list[str] | None,
    resolve: bool = False,
) -> None:
    """Print one record, found by its number or key, or all records with the key.

    With ``resolve``, revisits are printed with the bodies to which they refer.
    """
    from asyncrec.tools._cat import record_of, versions_of
    from asyncrec.tools._selection import selected

    view.printer()

    async def run() -> None:
        async with selected(path, **opened(path, storage_option)) as selection:
            printer = view.printer(path, selection.schema)
            if all_versions and key is not None:
                found = await versions_of(selection, key, newest)
            else:
                found = [await record_of(selection, record=record, key=key, newest=newest)]
            if resolve:
                async with resolving(path, storage_option) as whole:
                    found = await whole(found)
            show_all(printer, found)
            printer.end(path)

    run_async(run)


# The maximum number of bodies to keep in memory at once.
AT_ONCE = 16


@asynccontextmanager
async def resolving(path: str, storage_option: list[str] | None) -> AsyncIterator[Resolve]:
    """Open the data set that contains the bodies, and yield a function that resolves the revisits in a list of records.

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
