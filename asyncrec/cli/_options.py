"""The arguments and options that several commands share, and the function that runs a command's async code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

import typer

from asyncrec.cli._completion import complete_path

T = TypeVar("T")

Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A file, folder, pattern or data set; a local path or a URL.", autocompletion=complete_path
    ),
]
# The path of a command that reads records and opens its input with `opened`.
Input = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A file, folder, pattern or data set; a local path or a URL; - for standard input.",
        autocompletion=complete_path,
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A file, folder, pattern or data set; - for standard input.",
        autocompletion=complete_path,
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A data set (folder and name), a file or a folder.", autocompletion=complete_path
    ),
]
NewTarget = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The new data set (folder and name), or a file NAME.tfrecord; - for standard output.",
        autocompletion=complete_path,
    ),
]
Compression = Literal["none", "gzip", "zlib"]
KeptCompression = Literal["keep", "none", "gzip", "zlib"]
Jobs = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        min=1,
        metavar="N",
        help="Process this many shards or files at once; by default one per processor.",
    ),
]
MaxRecordBytes = Annotated[
    str | None,
    typer.Option(
        "--max-record-bytes",
        metavar="SIZE",
        help="Refuse longer records. Default: 256MiB, or the limit in the manifest.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option of the storage backend, such as region=eu-west-1. Can be repeated.",
    ),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", help="An option of the source's storage backend. Can be repeated."
    ),
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--target-storage-option",
        metavar="KEY=VALUE",
        help="An option of the target's storage backend. Can be repeated.",
    ),
]


def run_async(func: Callable[[], Awaitable[T]]) -> T:
    """Run ``func`` on a new asyncio event loop, which every backend supports."""
    import anyio

    return anyio.run(func)
