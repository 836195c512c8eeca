"""`copy`: files and data sets from one store to another, byte for byte, held against their checksums on the way.

Of a data set every shard goes with its index and its keys, and its manifest comes last: a copy that was interrupted is
no data set yet, and is taken up again by copying once more. What is there already and is the same is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from asyncrec._concurrency.map import concurrently
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import stem_of
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec.errors import ArgumentValueError, IntegrityError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._chunk_writer import ChunkWriter, ResumingSource
from asyncrec.storage._patterns import is_pattern
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._sent import check_sent
from asyncrec.storage._stored_checksum import stored_crc32c
from asyncrec.storage._url import join, redact
from asyncrec.tools._progress import Advance, Progress
from asyncrec.tools._selection import SelectedDataset, Selection, selected

__all__ = ["CopyReport", "copy"]

# Objects at once: they hide the delays of both stores, and each holds a chunk of each.
_CONCURRENT = 4
_BLOCK = 1 << 20


@dataclass(slots=True, kw_only=True)
class CopyReport:
    """What was done.

    Attributes:
        copied: paths of new objects, manifests aside.
        kept: of those that were there already, and the same.
        bytes: of what was copied.
    """

    source: str
    target: str
    copied: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "bytes": self.bytes,
            "copied": self.copied,
            "kept": self.kept,
        }


@dataclass(frozen=True, slots=True)
class _Item:
    """One object to copy: keys in both stores, and its CRC32C where a manifest says it."""

    source: str
    target: str
    crc32c: int | None


async def copy(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parallelism: int = _CONCURRENT,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> CopyReport:
    """Copy what ``source`` names to ``target``.

    A data set becomes the data set ``target`` (folder and name; its shards are renamed with it). A single file becomes
    the file ``target``, or one in it where it ends in ``/``. What a folder or a pattern names goes below ``target``
    with the names it has.

    Each object is verified: what is read against the manifest's CRC32C or the source's, what is stored by the sink, and
    by the CRC32C of the target's store where it keeps one. A data set at the target that is an earlier state of the
    source is brought up to date.

    Args:
        overwrite: replace files at the target that are others; without it they are an error.

    Raises:
        IntegrityError: what was read is not what the source is said to hold; nothing of that object was published.
        ObjectExistsError: the target holds another file or data set.
    """
    report = CopyReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    async with (
        selected(source, storage=storage, storage_options=storage_options) as selection,
        located(target, storage=target_storage, storage_options=target_storage_options) as (store, key),
    ):
        advance = Advance(progress, selection.bytes)

        async def one(item: _Item, into: Storage = store) -> None:
            display_path = join(into.root, item.target)
            # Of a data set nothing is written over: whoever else may make these names is told.
            exclusive = into is not store
            if await _same(selection.storage, into, item, overwrite=overwrite and not exclusive):
                report.kept.append(display_path)
                return
            # Before the sum is read: others add to it.
            size = await _copy(selection.storage, into, item, advance, exclusive=exclusive)
            report.bytes += size
            report.copied.append(display_path)

        items = [
            _Item(shard.key, _target(selection, shard.key, key), None)
            for shard in selection.shards
            if shard.dataset is None
        ]
        await concurrently(one, items, tasks=parallelism)
        for dataset in selection.datasets:
            at = key if selection.kind == "data set" else _target(selection, dataset.prefix + dataset.name, key)
            await _copy_dataset(dataset, store, at, one, parallelism)
    report.copied.sort()
    report.kept.sort()
    return report


def _target(selection: Selection, key: str, target: str) -> str:
    """Where an object goes: below the target with the part of its key that the selection does not share."""
    if selection.kind == "file":
        return target + key.rpartition("/")[2] if not target or target.endswith("/") else target
    below = selection.path[len(selection.base) :] if selection.path.startswith(selection.base) else ""
    below = below.rstrip("/") + "/" if selection.kind == "folder" and below.rstrip("/") else below.rpartition("/")[0]
    below = below if not below or below.endswith("/") else below + "/"
    name = key.removeprefix(below)
    return f"{target.rstrip('/')}/{name}" if target.rstrip("/") else name


async def _copy_dataset(
    dataset: SelectedDataset, store: Storage, at: str, one: Callable[..., Any], parallelism: int
) -> None:
    prefix, name = at[: at.rfind("/") + 1], at[at.rfind("/") + 1 :]
    if not name or name[0] in "_." or is_pattern(name):
        raise ArgumentValueError("the target of a data set ends in its name, which begins with neither '_' nor '.'")
    folder = folder_at(store, prefix)
    entries = [_renamed(entry, dataset.name, name) for entry in dataset.manifest.shards]
    there = await load_manifest(folder, name, path=at)
    if there is not None and not _missing(entries, there, at):
        return
    header = whole_job_header(
        folder,
        name,
        stems=tuple(sorted({stem for entry in entries for path in entry.objects if (stem := _stem(name, path))})),
        schema=dataset.manifest.schema,
        metadata=dataset.manifest.metadata,
    )
    pairs = list(zip(dataset.manifest.shards, entries, strict=True))
    async with open_job(folder, header, path=at, mode="append") as job:
        missing = _missing(entries, job.before, at)

        async def shard(pair: tuple[ShardEntry, ShardEntry]) -> None:
            old, entry = pair
            for from_, to in ((old.index, entry.index), (old.keys, entry.keys)):
                if from_ and to:
                    await one(_Item(dataset.prefix + from_.path, to.path, from_.crc32c), job.staging)
            await one(_Item(dataset.prefix + old.path, entry.path, old.crc32c), job.staging)

        job.publisher.publishing = True
        await concurrently(shard, pairs, tasks=parallelism)
        await job.commit([replace(entry, committed=job.manifest.clock.now()) for entry in missing])


def _stem(name: str, path: str) -> str | None:
    """Whose an object is: a shard, or an index or keys by the shard's name."""
    return stem_of(name, path.rpartition("/")[2].removesuffix(".index").removesuffix(".keys"))


def _missing(entries: list[ShardEntry], there: Manifest | None, at: str) -> list[ShardEntry]:
    """What the data set at the target lacks.

    Raises:
        ObjectExistsError: it is another one.
    """
    have = {_identity(entry) for entry in there.shards} if there else set()
    if have - {_identity(entry) for entry in entries}:
        raise ObjectExistsError(f"{at}: there is another data set; choose another name")
    return [entry for entry in entries if _identity(entry) not in have]


def _renamed(entry: ShardEntry, old: str, new: str) -> ShardEntry:
    """The entry with the data set's new name in all of its own."""

    def rename(path: str) -> str:
        folder, slash, name = path.rpartition("/")
        return folder + slash + new + name[len(old) :] if name.startswith(old + "-") else path

    def renamed(sidecar: Sidecar | None) -> Sidecar | None:
        return None if sidecar is None else replace(sidecar, path=rename(sidecar.path))

    return replace(entry, path=rename(entry.path), index=renamed(entry.index), keys=renamed(entry.keys))


def _identity(entry: ShardEntry) -> tuple[str, int, int, int | None]:
    return entry.path, entry.records, entry.bytes, entry.crc32c


async def _same(source: Storage, store: Storage, item: _Item, *, overwrite: bool) -> bool:
    """Whether the target has the object already.

    Raises:
        ObjectExistsError: it has another one.
    """
    try:
        there = await store.head(item.target)
    except ObjectNotFoundError:
        return False
    here = await source.head(item.source)
    expected = here.crc32c if item.crc32c is None else item.crc32c
    if here.size == there.size:
        # Not every store keeps a checksum: reading costs no more than copying once more.
        stored = await stored_crc32c(store, item.target) if there.crc32c is None else there.crc32c
        if stored == (await stored_crc32c(source, item.source) if expected is None else expected):
            return True
    if overwrite:
        return False
    raise ObjectExistsError(
        f"{join(store.root, item.target)}: there is another file, of {there.size:,} bytes and not {here.size:,}, or of "
        "another checksum; --overwrite (overwrite=True) replaces it"
    )


async def _copy(
    source: Storage, store: Storage, item: _Item, advance: Callable[[int], None], *, exclusive: bool
) -> int:
    """Copy one object; returns its bytes."""
    async with ResumingSource(source, item.source) as reading:
        async with store.open_sink(item.target, exclusive=exclusive) as sink:
            chunks = ChunkWriter(sink)
            while block := await reading.receive(_BLOCK):
                await chunks.write([block])
                advance(len(block))
            expected = reading.info.crc32c if item.crc32c is None else item.crc32c
            if expected is not None and expected != chunks.crc32c:
                raise IntegrityError(
                    f"{join(source.root, item.source)}: its CRC32C is {chunks.crc32c:08x}, and {expected:08x} is "
                    "expected of it: it is damaged, and was not copied; 'asyncrec repair' may save what is whole"
                )
            await chunks.finish()
    path = join(store.root, item.target)
    try:
        check_sent(path, sink.published, size=chunks.size, crc32c=chunks.crc32c, then="it was removed")
    except IntegrityError:
        await store.delete(item.target)
        raise
    return chunks.size
