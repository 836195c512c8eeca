"""The arguments and options shared by several commands, and the function that runs the async code of a command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import typer

from asyncrec.cli._completion import complete_feature, complete_path

T = TypeVar("T")


def path_argument(metavar: str, help: str) -> Any:
    """Return an argument that is completed with paths."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=complete_path)


def feature_option(help: str, *names: str, metavar: str = "FEATURE") -> Any:
    """Return an option that is completed with the names of features."""
    return typer.Option(*names, metavar=metavar, help=help, autocompletion=complete_feature)


def _storage(help: str, name: str = "--storage-option") -> Any:
    return typer.Option(name, metavar="KEY=VALUE", help=f"{help} Can be repeated.")


Path = Annotated[str, path_argument("PATH", "A file, folder, pattern or data set: a local path or a URL.")]
# The path argument of commands that read records, and open their input with the arguments from `opened`.
Input = Annotated[
    str, path_argument("PATH", "A file, folder, pattern or data set (a local path or a URL), or - for standard input.")
]
Source = Annotated[str, path_argument("SOURCE", "A file, folder, pattern or data set, or - for standard input.")]
Target = Annotated[str, path_argument("TARGET", "A data set (folder and name), a file or a folder.")]
NewTarget = Annotated[
    str, path_argument("TARGET", "The new data set (folder and name), a file NAME.tfrecord, or - for standard output.")
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
        help="Number of shards or files to process at once. Default: one per processor.",
    ),
]
MaxRecordBytes = Annotated[
    str | None,
    typer.Option(
        "--max-record-bytes",
        metavar="SIZE",
        help="Maximum size of a record. Default: 256MiB, or the limit in the manifest.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback on error.")]
StorageOptions = Annotated[list[str] | None, _storage("An option of the storage backend, such as region=eu-west-1.")]
SourceOptions = Annotated[list[str] | None, _storage("An option of the source's storage backend.")]
TargetOptions = Annotated[
    list[str] | None, _storage("An option of the target's storage backend.", "--target-storage-option")
]


def run_async(func: Callable[[], Awaitable[T]]) -> T:
    """Run ``func`` in a new asyncio event loop, because every backend supports asyncio."""
    import anyio

    return anyio.run(func)
