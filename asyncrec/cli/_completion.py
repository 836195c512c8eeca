"""Shells complete what follows with these: paths, with the data sets of a folder and the stores that are installed;
names of features; conditions.

A shell asks at each Tab and shows no error: what is not found in time is not completed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import typer

# Of a store that does not answer.
_SECONDS = 3.0


def complete_path(incomplete: str) -> list[str]:
    """Data sets, folders and files of records; and the beginnings of URLs."""
    try:
        found = [*_local(incomplete), *(url for url in _stores() if url.startswith(incomplete) and incomplete)]
        if len(found) == 1 and found[0].endswith("/") and "://" not in found[0]:
            found = [*_local(found[0])] or found
        return sorted(found)
    except Exception:  # of a completion nobody sees it
        return []


def complete_feature(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the features of what the command reads."""
    return [name for name in _features(ctx) if name.startswith(incomplete)]


def complete_condition(ctx: typer.Context, incomplete: str) -> list[str]:
    """The beginnings of conditions: a name, and ``=``."""
    return [f"{name}=" for name in _features(ctx) if name.startswith(incomplete)]


def _local(incomplete: str) -> Iterator[str]:
    """What is in a folder of this machine: a data set by its name, in place of its shards."""
    if "://" in incomplete:
        return
    folder, beginning = os.path.split(incomplete)
    shown = incomplete[: len(incomplete) - len(beginning)]
    names = sorted(os.listdir(folder or "."))
    manifest = os.path.join(folder or ".", "_manifest")
    sets = sorted(os.listdir(manifest)) if os.path.isdir(manifest) else []
    for name in sets:
        if name.startswith(beginning):
            yield shown + name
    for name in names:
        if not name.startswith(beginning) or name[0] in "._" or any(_is_shard(name, each) for each in sets):
            continue
        if os.path.isdir(os.path.join(folder or ".", name)):
            yield f"{shown}{name}/"
        else:
            yield shown + name


def _is_shard(name: str, dataset: str) -> bool:
    return name.startswith(f"{dataset}-") and ".tfrec" in name


def _stores() -> Iterable[str]:
    from asyncrec.storage import schemes

    return [f"{scheme}://" for scheme in schemes()]


def _features(ctx: typer.Context) -> list[str]:
    # A shell's line is not complete: its arguments are in no parameter yet, and the first is what is read.
    if not ctx.args:
        return []
    path = os.path.expanduser(ctx.args[0])
    try:
        import anyio

        return anyio.run(_read_features, path, list(ctx.params.get("storage_option") or ()))
    except BaseException:  # of a completion nobody sees it
        return []


async def _read_features(path: str, storage_option: list[str] | None) -> list[str]:
    import anyio

    from asyncrec import tools
    from asyncrec.cli._values import parse_options
    from asyncrec.example._codec import decode_sequence_example

    with anyio.move_on_after(_SECONDS):
        async with tools.open_records(path, storage_options=parse_options(storage_option)) as stream:
            schema = stream.selection.schema
            if schema is not None:
                return sorted(schema["features"])
            async for records in stream:
                context, lists = decode_sequence_example(records[0].data)
                return sorted({*context, *lists})
    return []
