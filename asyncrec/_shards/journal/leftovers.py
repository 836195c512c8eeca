"""What a job has begun on a disk and not finished is found by its names; only this user's own files are taken for it.

The names can be read from the header's, so that others may lay something there: a file of theirs, a link, a pipe. That
is no leftover of the job. It is not read, not removed, and keeps no job from ending. Everything here blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from asyncrec._shards.journal.header import JobHeader
from asyncrec.storage._local.disk import partial_name
from asyncrec.storage._local.opening import own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

__all__ = [
    "has_leftovers",
    "kept_path",
    "leftovers_of",
    "names_in",
    "other_names",
    "sidecars_left_of",
    "strangers_among",
]


def leftovers_of(folder: LocalStorage, header: JobHeader) -> list[str]:
    """List the shards that a job has begun in a folder and not finished, in order; in a spool, finished ones too."""
    return sorted({shard for shard, path in _shards(folder, header) if _is_own(folder, path)})


def sidecars_left_of(folder: LocalStorage, header: JobHeader) -> list[str]:
    """List the paths of indexes and keys that a job has begun and not finished; in a spool, of finished ones too.

    They may have no shard: one was not begun yet, or was removed by a disk that then failed to remove these.
    """
    return [path for path in _sidecars(folder, header) if _is_own(folder, path)]


def has_leftovers(folder: LocalStorage, header: JobHeader) -> bool:
    """Whether anything is left of what a job has begun. Its header then has to stay: by it alone the rest is found."""
    return bool(leftovers_of(folder, header) or sidecars_left_of(folder, header))


def strangers_among(folder: LocalStorage, header: JobHeader) -> list[str]:
    """List the paths of what has the name of a job's leftover, and is none."""
    paths = [path for _, path in _shards(folder, header)]
    return [path for path in (*paths, *_sidecars(folder, header)) if not _is_own(folder, path)]


def other_names(path: str, writer: str) -> list[str]:
    """List the paths under which a file of the job ``writer`` may stand besides: unfinished, published, kept."""
    folder, name = os.path.split(path)
    whole = name.removeprefix(".").removesuffix(f".{writer}.partial")
    names = [os.path.join(folder, each) for each in (whole, partial_name(whole, writer))]
    return [each for name in names for each in (name, kept_path(name)) if each != path]


def kept_path(path: str) -> str:
    """Return where a damaged journal is kept, for `asyncrec.tools.repair`."""
    return path.removesuffix(".partial") + ".damaged"


def names_in(folder: LocalStorage, part: str = "") -> list[str]:
    """List a folder, or the folder ``part`` in it; what is not there, or is no folder, is empty."""
    path = os.path.join(folder.folder, part)
    with mapped_errors("listing", path):
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _shards(folder: LocalStorage, header: JobHeader) -> Iterator[tuple[str, str]]:
    end = f".{header.writer}.partial"
    for name in names_in(folder):
        begun = name.startswith(".") and name.endswith(end)
        shard = name[1 : -len(end)] if begun else name
        if header.begins(shard) if begun else header.spool and header.makes(shard, plain=True):
            yield shard, os.path.join(folder.folder, name)


def _sidecars(folder: LocalStorage, header: JobHeader) -> Iterator[str]:
    ends = (f".{header.writer}.partial", f".{header.writer}~begun.partial")
    for part, end in (("_index", ".index"), ("_keys", ".keys")):
        for name in names_in(folder, part):
            begun = name.startswith(".") and name.endswith(ends)
            if begun or (header.spool and name.endswith(end)):
                shard = name.removeprefix(".").partition(".tfrecord.")[0] + ".tfrecord"
                if header.begins(shard) if begun else header.makes(shard, plain=True):
                    yield os.path.join(folder.folder, part, name)


def _is_own(folder: LocalStorage, path: str) -> bool:
    with mapped_errors("finding", path):
        return own_file(path, system=folder.disk.system)
