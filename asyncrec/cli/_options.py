"""The arguments and options that several commands share, and how a command runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

import typer

from asyncrec.cli._completion import complete_path

T = TypeVar("T")

Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A file, folder, pattern or data set; local or a URL.", autocompletion=complete_path
    ),
]
# Of a command that reads records, and opens what holds them by `opened`.
Input = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A file, folder, pattern or data set; local or a URL; - is standard input.",
        autocompletion=complete_path,
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A file, folder, pattern or data set; - is standard input.", autocompletion=complete_path
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A data set (folder and name), or a file or folder.", autocompletion=complete_path
    ),
]
NewTarget = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The new data set (folder and name); or a file of records, NAME.tfrecord; - is standard output.",
        autocompletion=complete_path,
    ),
]
Compression = Literal["none", "gzip", "zlib"]
KeptCompression = Literal["keep", "none", "gzip", "zlib"]
Jobs = Annotated[
    int | None,
    typer.Option(
        "-j", "--jobs", min=1, metavar="N", help="Shards or files at once; unless given, one for each processor."
    ),
]
MaxRecordBytes = Annotated[
    str | None,
    typer.Option(
        "--max-record-bytes", metavar="SIZE", help="A longer record is an error; 256MiB, or what the manifest notes."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", help="For the backend, as region=eu-west-1; may be repeated."
    ),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="KEY=VALUE", help="For the backend of the source; may be repeated."),
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option("--target-storage-option", metavar="KEY=VALUE", help="For the backend of the target."),
]


def run_async(func: Callable[[], Awaitable[T]]) -> T:
    """Run ``func`` on an event loop of its own: asyncio, on which every backend runs."""
    import anyio

    return anyio.run(func)
