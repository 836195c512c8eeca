"""What a job has on a disk, by its header: its journals, its sidecars, and when anything of them last changed.

Everything here blocks, and is for worker threads.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.status import status_path
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

__all__ = [
    "TAKEN",
    "has_leftovers",
    "header_path",
    "is_silent",
    "leftovers_of",
    "names_in",
    "sidecars_left_of",
    "take_journals",
]

TAKEN = "~taken"
"""Stands behind the maker in the name of an unfinished file that another process has taken."""

# Sixty statuses of the default, and the longest that Linux's NFS believes what it has remembered of a file.
_SILENT_SECONDS = 120.0


def leftovers_of(folder: LocalStorage, header: JobHeader) -> list[str]:
    """List the shards that a job has begun in a folder and not finished, in order; in a spool, finished ones too."""
    ends = (f".{header.writer}.partial", f".{header.writer}{TAKEN}.partial")
    found = set()
    for name in names_in(folder):
        end = next((end for end in ends if name.startswith(".") and name.endswith(end)), None)
        begun = end is not None
        shard = name[1 : -len(end)] if end is not None else name
        if header.begins(shard) if begun else header.spool and header.makes(shard, plain=True):
            found.add(shard)
    return sorted(found)


def sidecars_left_of(folder: LocalStorage, header: JobHeader) -> list[str]:
    """List the paths of indexes and keys that a job has begun and not finished; in a spool, of finished ones too.

    They may have no shard: one was not begun yet, or was removed by a disk that then failed to remove these.
    """
    ends = tuple(f".{header.writer}{end}.partial" for end in ("", "~begun", TAKEN))
    found = []
    for part, end in (("_index", ".index"), ("_keys", ".keys")):
        for name in names_in(folder, part):
            begun = name.startswith(".") and name.endswith(ends)
            if begun or (header.spool and name.endswith(end)):
                shard = name.removeprefix(".").partition(".tfrecord.")[0] + ".tfrecord"
                if header.begins(shard) if begun else header.makes(shard, plain=True):
                    found.append(os.path.join(folder.folder, part, name))
    return found


def has_leftovers(folder: LocalStorage, header: JobHeader) -> bool:
    """Whether anything is left of what a job has begun. Its header then has to stay: by it alone the rest is found."""
    return bool(leftovers_of(folder, header) or sidecars_left_of(folder, header))


def header_path(folder: LocalStorage, header: JobHeader) -> str:
    """Return where a job's header is."""
    return os.path.join(folder.folder, f".{header.name}.{header.writer}.partial")


def names_in(folder: LocalStorage, part: str = "") -> list[str]:
    path = os.path.join(folder.folder, part)
    with mapped_errors("listing", path):
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []


def is_silent(folder: LocalStorage, header: JobHeader) -> bool:
    """Whether nothing of a job has changed for two minutes, by the clock of the filesystem and not of this machine.

    Not where that clock cannot be read, because nothing can be written there.
    """
    system, owned = folder.disk.system, folder.owned_by(header.writer)
    # As a header before it has its name, which is taken away if this process dies meanwhile.
    probe = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
    try:
        fd = system.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
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
