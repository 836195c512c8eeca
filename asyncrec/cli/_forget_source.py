"""``asyncrec forget-source PATH SOURCE``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, Path, StorageOptions, run_async
from asyncrec.cli._output import print_json, say
from asyncrec.cli._values import parse_options


def command(
    path: Path,
    source: Annotated[str, typer.Argument(metavar="NAME", help="The name of the source, as shown by 'asyncrec info'.")],
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Forget the stored position of the source NAME in the data set PATH, so that the next writer starts it from the
    beginning.

    Use this if a topic was deleted and recreated under the same name. Stored records are kept. First stop the writers
    that use the source, because a writer that continues with it gets an error.

    \b
    Example:
      asyncrec forget-source demo-data/pages topic/3
    """
    from asyncrec.storage._url import redact
    from asyncrec.tools import forget_source

    options = parse_options(storage_option)
    position = run_async(lambda: forget_source(path, source, storage_options=options))
    if json:
        print_json({"path": redact(path), "source": source, "position": position})
    else:
        say(f"{redact(path)}: forgot the source {source}, which was stored up to position {position:,}")
    return 0
