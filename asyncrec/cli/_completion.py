"""Completions for shells: paths, data sets, the schemes of installed stores, names of features, and conditions.

A shell requests completions whenever Tab is pressed, and shows no errors. If reading the names takes too long, no
completions are returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import typer

# The time limit for reading the names of features from a store.
_SECONDS = 3.0


def complete_path(incomplete: str) -> list[str]:
    """Return the matching data sets, folders, files and schemes of URLs."""
    try:
        found = [*_local(incomplete), *(url for url in _stores() if url.startswith(incomplete) and incomplete)]
        if len(found) == 1 and found[0].endswith("/") and "://" not in found[0]:
            found = [*_local(found[0])] or found
        return sorted(found)
    except Exception:  # a shell does not show errors
        return []


def complete_feature(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the matching names of features in the command's input."""
    return [name for name in _features(ctx) if name.startswith(incomplete)]


def complete_condition(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the matching beginnings of conditions, which are names of features followed by ``=``."""
    return [f"{name}=" for name in _features(ctx) if name.startswith(incomplete)]


def _local(incomplete: str) -> Iterator[str]:
    """Yield the matching names in a local folder. A data set is listed by its name instead of its shards."""
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
    # The command line is incomplete, so typer has not parsed its arguments. The first argument is the input.
    if not ctx.args:
        return []
    path = os.path.expanduser(ctx.args[0])
    try:
        import anyio

        return anyio.run(_read_features, path, list(ctx.params.get("storage_option") or ()))
    except BaseException:  # a shell does not show errors
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
