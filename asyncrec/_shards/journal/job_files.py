"""What a job has on a disk, by its header: its journals, its sidecars, and when anything of them last changed.

The names can be read from the header's, so that others may lay something there: a file of theirs, a link, a pipe. Only
this user's own files are taken for the job's. What is not is neither read nor removed, and keeps no job from ending.
Everything here blocks, and is for worker threads.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.status import status_path
from asyncrec.storage._local.disk import partial_name
from asyncrec.storage._local.opening import create_file, own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

TAKEN = "~taken"
"""Stands behind the maker in the name of an unfinished file that another process has taken."""

# Sixty statuses of the default, and the longest that Linux's NFS believes what it has remembered of a file.
_SILENT_SECONDS = 120.0


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
    """List the paths of what has the name of a job's leftover, and is not this user's own file."""
    paths = [path for _, path in _shards(folder, header)]
    return [path for path in (*paths, *_sidecars(folder, header)) if not _is_own(folder, path)]


def other_names(path: str, writer: str) -> list[str]:
    """List the other paths of a file of the job ``writer``: unfinished, taken, published and kept."""
    folder, name = os.path.split(path)
    whole = name
    for end in _ends(writer):
        if name.startswith(".") and name.endswith(end):
            whole = name[1 : -len(end)]
    names = [whole, *(partial_name(whole, maker) for maker in (writer, f"{writer}{TAKEN}"))]
    paths = [os.path.join(folder, each) for each in names]
    return [each for each in dict.fromkeys([*paths, *map(kept_path, paths)]) if each != path]


def kept_path(path: str) -> str:
    """Return where a damaged journal is kept, for `asyncrec.tools.repair`."""
    return path.removesuffix(".partial").removesuffix(TAKEN) + ".damaged"


def header_path(folder: LocalStorage, header: JobHeader) -> str:
    """Return where a job's header is."""
    return os.path.join(folder.folder, f".{header.name}.{header.writer}.partial")


def names_in(folder: LocalStorage, part: str = "") -> list[str]:
    """List a folder, or the folder ``part`` in it; what is not there, or is not a folder, is empty."""
    path = os.path.join(folder.folder, part)
    with mapped_errors("listing", path):
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []


def is_silent(folder: LocalStorage, header: JobHeader) -> bool:
    """Whether nothing of a job has changed for two minutes, by the clock of the filesystem and not of this machine.

    Not where that clock cannot be read, because nothing can be written there.
    """
    system, owned = folder.disk.system, folder.owned_by(header.writer)
    # As a header before it has its name, which is taken away if this process dies meanwhile.
    probe = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
    try:
        fd = create_file(probe, system=system)
        try:
            system.write(fd, b"\n")
            system.fsync(fd)
            now = system.fstat(fd).st_mtime
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                system.unlink(probe)
        told = 0.0
        for path in (
            header_path(folder, header),
            status_path(folder, header),
            *(str(owned.partial_of(shard)) for shard in leftovers_of(folder, header)),
        ):
            with suppress(FileNotFoundError):
                told = max(told, system.lstat(path).st_mtime)
    except OSError:
        return False
    return bool(now - told > _SILENT_SECONDS)


def take_journals(folder: LocalStorage, header: JobHeader) -> None:
    """Rename what a job has begun, so that it can publish nothing of it any more if it lives after all.

    Of each shard the journal first: the job publishes it last. One that was taken before stays as it is.
    """
    own, taken = folder.owned_by(header.writer), folder.owned_by(f"{header.writer}{TAKEN}")
    paths = [(str(own.partial_of(shard)), str(taken.partial_of(shard))) for shard in leftovers_of(folder, header)]
    end = f".{header.writer}.partial"
    for path in sidecars_left_of(folder, header):
        if path.endswith(end):
            paths.append((path, f"{path.removesuffix(end)}.{header.writer}{TAKEN}.partial"))
    for path, to in paths:
        with mapped_errors("renaming", path), suppress(FileNotFoundError):
            if not os.path.lexists(to):
                folder.disk.system.replace(path, to)


def _ends(writer: str) -> tuple[str, str]:
    return f".{writer}.partial", f".{writer}{TAKEN}.partial"


def _shards(folder: LocalStorage, header: JobHeader) -> Iterator[tuple[str, str]]:
    ends = _ends(header.writer)
    for name in names_in(folder):
        end = next((end for end in ends if name.startswith(".") and name.endswith(end)), None)
        shard = name if end is None else name[1 : -len(end)]
        if header.spool and header.makes(shard, plain=True) if end is None else header.begins(shard):
            yield shard, os.path.join(folder.folder, name)


def _sidecars(folder: LocalStorage, header: JobHeader) -> Iterator[str]:
    ends = (*_ends(header.writer), f".{header.writer}~begun.partial")
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
