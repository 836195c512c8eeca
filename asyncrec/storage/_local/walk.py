"""List all files below a folder in the order of an object store: ascending by the UTF-8 bytes of the full key. Blocks.

A folder is sorted by its name followed by a slash, so ``a-b`` comes before ``a/b``, although the name ``a`` is less
than ``a-b``. No key from another folder comes between two keys of a folder. Therefore, each folder is sorted
separately, and only the folders on the current path are in memory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from asyncrec.storage._local.disk import is_partial


def walk(folder: str, prefix: str, start_after: str, *, partial: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Yield ``(key, status)`` of the regular files whose keys begin with ``prefix`` and come after ``start_after``.

    With ``partial``, only unfinished files are listed; without it, all other files. Symbolic links are followed, except
    to a folder that contains the link. Files that are removed during the listing are omitted. No descriptor is open
    between two items.

    Raises:
        OSError: a folder cannot be read.
    """
    base = prefix[: prefix.rfind("/") + 1]
    if "\0" in prefix or any(segment in ("", ".", "..") for segment in base.split("/")[:-1]):
        return  # no key begins with this prefix
    try:
        ancestors = _ancestors(folder, base)
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from _below(
        os.path.join(folder, base) if base else folder,
        os.fsencode(base),
        os.fsencode(prefix),
        os.fsencode(start_after),
        partial,
        ancestors,
    )


def _ancestors(folder: str, base: str) -> frozenset[tuple[int, int]]:
    """Return the identities of the folders on the path from the root to the first listed folder."""
    found = {_identity(os.stat(folder))}
    for end, character in enumerate(base):
        if character == "/":
            found.add(_identity(os.stat(os.path.join(folder, base[:end]))))
    return frozenset(found)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _below(
    path: str, base: bytes, prefix: bytes, start_after: bytes, partial: bool, ancestors: frozenset[tuple[int, int]]
) -> Iterator[tuple[str, os.stat_result]]:
    for key, entry in _entries(path, base, prefix, start_after):
        try:
            status = os.stat(entry)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue  # removed, or a dangling link
            raise
        if key.endswith(b"/"):
            identity = _identity(status)
            if identity not in ancestors:
                yield from _below(entry, key, prefix, start_after, partial, ancestors | {identity})
        elif stat.S_ISREG(status.st_mode) and key > start_after and is_partial(os.path.basename(entry)) == partial:
            yield os.fsdecode(key), status


def _entries(path: str, base: bytes, prefix: bytes, start_after: bytes) -> list[tuple[bytes, str]]:
    """Return sorted ``(key, path)`` pairs of the relevant entries of a folder. Keys of subfolders end in a slash."""
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    folder = entry.is_dir()
                except OSError:
                    folder = False  # for example a link to itself, which `os.stat` will reject
                key = base + os.fsencode(entry.name) + (b"/" if folder else b"")
                if folder:
                    if not (key.startswith(prefix) or prefix.startswith(key)):
                        continue
                    if key < start_after and not start_after.startswith(key):
                        continue  # all keys below it are also less
                elif not key.startswith(prefix):
                    continue
                found.append((key, entry.path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found.sort()
    return found
