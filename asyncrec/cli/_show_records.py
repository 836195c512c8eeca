"""What ``head`` and ``cat`` share: the options that say which records are shown and how, and the showing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._options import parse_options, run_async
from asyncrec.cli._record_formats import FORMATS, printer

if TYPE_CHECKING:
    from asyncrec.tools._head import FoundRecord

__all__ = ["Features", "Format", "RecordView", "Wheres", "show_record", "show_records"]

Format = Annotated[
    str, typer.Option("-f", "--format", metavar="|".join(FORMATS), help="auto shows Examples by feature.")
]
Features = Annotated[list[str] | None, typer.Option("--feature", metavar="NAME", help="Only this; may be repeated.")]
Wheres = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=VALUE", help="Only such records, also NAME!=VALUE; all of several hold."),
]


@dataclass(frozen=True, slots=True)
class RecordView:
    """How a record is shown: the format, the features asked for, and whether hex is shown in full length."""

    format: str
    features: list[str] | None
    whole: bool

    def printer(self, lists: frozenset[str] = frozenset()) -> Callable[[FoundRecord], None]:
        """What shows one record. Raises UsageError for a format that cannot be."""
        only = frozenset(self.features) if self.features else None
        return printer(self.format, lists=lists, only=only, whole=self.whole)


def show_records(
    path: str, view: RecordView, *, wheres: list[str] | None, limit: int | None, storage_option: list[str] | None
) -> None:
    """Show the first ``limit`` records, or all, for which every condition holds."""
    from asyncrec import tools
    from asyncrec.tools._json_values import lists_of

    options = parse_options(storage_option)
    conditions = [tools.Where.parse(text) for text in wheres or ()]
    view.printer()  # what it would refuse is said before anything is opened

    async def run() -> None:
        left = limit
        async with tools.open_records(path, where=conditions, storage_options=options) as stream:
            show = view.printer(lists_of(stream.selection.schema))
            if left == 0:
                return
            async for records in stream:
                for found in records[:left]:
                    show(found)
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        return

    run_async(run)


def show_record(
    path: str, view: RecordView, *, record: int | None, key: str | None, storage_option: list[str] | None
) -> None:
    """Show one record, by its number or its key."""
    from asyncrec import tools

    options = parse_options(storage_option)
    show = view.printer()
    show(run_async(lambda: tools.get_record(path, record=record, key=key, storage_options=options)))
