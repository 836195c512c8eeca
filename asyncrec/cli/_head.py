"""``asyncrec head PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._cat import Features, Format, Wheres, show
from asyncrec.cli._options import Debug, Json, Path, StorageOptions


def command(
    path: Path,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="So many records.")] = 10,
    format: Format = "auto",
    feature: Features = None,
    where: Wheres = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """The first records, decoded: Examples by feature, other text as text, the rest as hex."""
    show(
        path,
        limit=limit,
        format="json" if json else format,
        features=feature,
        wheres=where,
        storage_option=storage_option,
        whole=False,
    )
    return 0
