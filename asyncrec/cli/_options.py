"""The options that several commands share, and what turns their text into values."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from asyncrec.errors import UsageError

__all__ = [
    "Debug",
    "Json",
    "Path",
    "Source",
    "SourceOptions",
    "StorageOptions",
    "Target",
    "TargetOptions",
    "parse_compression",
    "parse_duration",
    "parse_options",
    "parse_size",
    "run_async",
    "stores",
]

T = TypeVar("T")

Path = Annotated[str, typer.Argument(metavar="PATH", help="A file, folder, pattern or data set; local or a URL.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A file, folder, pattern or data set.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="A data set (folder and name), or a file or folder.")]
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

_VALUE = re.compile(r'true|false|null|-?(0|[1-9]\d*)(\.\d+)?|"[^"\\\\]*"')
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def run_async(func: Callable[[], Awaitable[T]]) -> T:
    """Run ``func`` on an event loop of its own: asyncio, on which every backend runs."""
    import anyio

    return anyio.run(func)


def parse_options(given: list[str] | None) -> dict[str, Any] | None:
    """``["region=eu", "max_concurrency=8"]`` as a dict.

    Values written as numbers, true, false and null are such; in quotation marks they are text whatever they look like.
    """
    options: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            # The text may be a secret that was put at the wrong place.
            raise UsageError("--storage-option is KEY=VALUE, as in --storage-option region=eu-west-1")
        options[name.replace("-", "_")] = json.loads(value) if _VALUE.fullmatch(value) else value
    return options or None


def stores(source: list[str] | None, target: list[str] | None) -> dict[str, Any]:
    """The arguments by which a tool that reads one store and writes another gets the options of both."""
    return {"storage_options": parse_options(source), "target_storage_options": parse_options(target)}


def parse_compression(text: str) -> str:
    """``"none"``, ``"gzip"``, ``"zlib"``, in any case, as the library calls them."""
    return "" if text.lower() == "none" else text.upper()


def parse_size(text: str | None) -> int | None:
    """``"64MiB"``, ``"64M"``, ``"1000"`` in bytes; units are powers of 1024."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no size: write 1000, 64M or 1.5GiB")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def parse_duration(text: str) -> float:
    """``"90s"``, ``"15m"``, ``"12h"``, ``"1d"``, ``"2w"`` in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no time: write 90s, 15m, 12h, 1d or 2w")
    return float(match[1]) * _SECONDS[match[2].lower()]
