"""`JobFiles`: the files that a job has on a disk (its journals and sidecars), and whether they have changed recently.

The names can be derived from the header, so another user could create a file, a link or a pipe with one of these names.
Only this user's own files belong to the job. Others are neither read nor removed, and do not prevent the job from being
ended. All methods in this module block. Call them in worker threads.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress

from asyncrec._shards.journal.header import JobHeader, header_path, names_in
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.status import status_path
from asyncrec._shards.manifest.names import index_key, keys_key, progress_key, with_maker
from asyncrec.storage._local.disk import partial_name
from asyncrec.storage._local.opening import create_file, own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

# This suffix follows the maker in the name of an unfinished file that another process has taken over.
_TAKEN = "~taken"
# Sixty times the default interval between statuses, and no less than the time for which NFS on Linux caches attributes.
_SILENT_SECONDS = 120.0


class JobFiles:
    """The unfinished files of one job in a folder. In a spool, they include the job's complete shards.

    Attributes:
        folder: the folder of these files.
    """

    def __init__(self, folder: LocalStorage, header: JobHeader) -> None:
        self.folder = folder
        self._header = header
        self._writer = header.writer
        # Match every name that may belong to the job: only this user's files count, and no other job has this id.
        self._names = JobNames.of(header, plain=True)
        self._owned = folder.owned_by(header.writer)
        self._taken = folder.owned_by(f"{header.writer}{_TAKEN}")
        self._ends = (f".{header.writer}.partial", f".{header.writer}{_TAKEN}.partial")

    def shards(self) -> list[str]:
        """Return the shards that the job has begun but not finished, in order. In a spool, include finished shards."""
        return sorted({shard for shard, path in self._shards() if self._is_own(path)})

    def any_left(self) -> bool:
        """Return whether any unfinished file of the job is left. If so, keep the header, which is needed to find it."""
        return bool(self.shards() or self._own_sidecars())

    def strangers(self) -> list[str]:
        """Return the paths of files that are named like the job's files but do not belong to this user."""
        paths = [path for _, path in self._shards()]
        return [path for path in (*paths, *self._sidecars()) if not self._is_own(path)]

    def are_silent(self) -> bool:
        """Return whether none of the job's files has changed for two minutes, by the filesystem's clock.

        Return false if that clock cannot be read because no file can be created in the folder.
        """
        folder, system, header = self.folder, self.folder.disk.system, self._header
        # The name looks like an unfinished header's, so that another process removes the file if this one dies.
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
                header_path(folder, header.name, header.writer),
                status_path(folder, header),
                *(str(self._owned.partial_of(shard)) for shard in self.shards()),
            ):
                with suppress(FileNotFoundError):
                    told = max(told, system.lstat(path).st_mtime)
        except OSError:
            return False
        return bool(now - told > _SILENT_SECONDS)

    def take(self) -> None:
        """Rename the unfinished files of a job, so that it cannot publish any of them if it is alive after all.

        Journals are renamed first, because the job publishes them last. A file that was already renamed is skipped.
        """
        paths = [(str(self._owned.partial_of(shard)), str(self._taken.partial_of(shard))) for shard in self.shards()]
        end, taken = self._ends
        paths += [(path, path.removesuffix(end) + taken) for path in self._own_sidecars() if path.endswith(end)]
        for path, to in paths:
            with mapped_errors("renaming", path), suppress(FileNotFoundError):
                if not os.path.lexists(to):
                    self.folder.disk.system.replace(path, to)

    def to_read(self, shard: str) -> tuple[str, str | None, list[str], str]:
        """Return the paths from which to read a shard that was taken over.

        They are the path of its journal, the path of its keys file or `None`, a list of other paths at which these two
        files may be linked, and the path of its positions file, which may not exist (`positions_file`). In a spool, the
        shard and its keys may be complete.
        """
        path = str(self.folder.path_of(shard))
        if not (self._header.spool and own_file(path)):
            path = str(self._taken.partial_of(shard))
        sidecar_name = with_maker(self._names.name, shard, self._writer)
        positions = str(self._taken.partial_of(progress_key(sidecar_name)))
        key = keys_key(sidecar_name)
        # The keys file may already have its final name, because it is published before the shard.
        keys = next(filter(own_file, (str(self.folder.path_of(key)), str(self._taken.partial_of(key)))), None)
        names = [*self._other_names(path), *(self._other_names(keys) if keys is not None else ())]
        return path, keys, names, positions

    def is_whole(self, shard: str) -> bool:
        """Return whether the shard is complete and waiting in a spool to be uploaded."""
        return self._header.spool and own_file(str(self.folder.path_of(shard)))

    def remove(self) -> list[str]:
        """Remove the remaining files of all shards. Return the names of the shards."""
        shards = self.shards()
        for shard in shards:
            self.remove_shard(shard)
        # Remove the sidecars that do not belong to any of these shards: a copy's sidecars have other ids in their
        # names, and a disk failure or a power failure may have left an index without its shard.
        for path in self._own_sidecars():
            self._unlink(path)
        return shards

    def remove_shard(self, shard: str) -> None:
        """Remove the remaining files of a shard that is already in the manifest or never will be.

        The shard itself is removed last, because the other files can only be found while it exists.
        """
        sidecar_name = with_maker(self._names.name, shard, self._writer)
        for key in (index_key(sidecar_name), keys_key(sidecar_name), progress_key(sidecar_name), shard):
            paths = [self._owned.partial_of(key), self._taken.partial_of(key)]
            if key != shard:
                paths.append(self._owned.begun_of(key))
            if self._header.spool:
                paths.append(self.folder.path_of(key))
            for path in map(str, paths):
                if own_file(path):
                    self._unlink(path)

    def _unlink(self, path: str) -> None:
        with mapped_errors("deleting", path), suppress(FileNotFoundError):
            self.folder.disk.system.unlink(path)

    def _shards(self) -> Iterator[tuple[str, str]]:
        for name in names_in(self.folder):
            end = next((end for end in self._ends if name.startswith(".") and name.endswith(end)), None)
            shard = name if end is None else name[1 : -len(end)]
            if self._names.begins(shard) if end is not None else self._header.spool and self._names.makes(shard):
                yield shard, os.path.join(self.folder.folder, name)

    def _sidecars(self) -> Iterator[str]:
        """Yield the paths of the unfinished sidecars. In a spool, yield the paths of finished sidecars too.

        A sidecar's shard may not exist, if it was not begun yet or if the disk failed after it was removed.
        """
        ends = (*self._ends, f".{self._writer}~begun.partial")
        for part, end in (("_index", ".index"), ("_keys", ".keys"), ("_progress", ".progress")):
            for name in names_in(self.folder, part):
                begun = name.startswith(".") and name.endswith(ends)
                if begun or (self._header.spool and name.endswith(end)):
                    shard = name.removeprefix(".").partition(".tfrecord.")[0] + ".tfrecord"
                    if self._names.begins(shard) if begun else self._names.makes(shard):
                        yield os.path.join(self.folder.folder, part, name)

    def _own_sidecars(self) -> list[str]:
        return [path for path in self._sidecars() if self._is_own(path)]

    def _is_own(self, path: str) -> bool:
        with mapped_errors("looking up", path):
            return own_file(path, system=self.folder.disk.system)

    def _other_names(self, path: str) -> list[str]:
        """Return the other paths that a file of the job may have: while unfinished, taken over, published or kept."""
        folder, name = os.path.split(path)
        whole = name
        for end in self._ends:
            if name.startswith(".") and name.endswith(end):
                whole = name[1 : -len(end)]
        names = [whole, *(partial_name(whole, maker) for maker in (self._writer, f"{self._writer}{_TAKEN}"))]
        paths = [os.path.join(folder, each) for each in names]
        return [each for each in dict.fromkeys([*paths, *map(kept_path, paths)]) if each != path]


def kept_path(path: str) -> str:
    """Return the path at which a damaged journal is kept, for `asyncrec.tools.repair`."""
    return path.removesuffix(".partial").removesuffix(_TAKEN) + ".damaged"


def keep(path: str) -> str:
    """Link a damaged journal to a second path that no recovery removes. Return that path."""
    kept = kept_path(path)
    with mapped_errors("saving", kept):
        try:
            os.link(path, kept)
        except FileExistsError:
            if os.lstat(path).st_ino != os.lstat(kept).st_ino:  # otherwise, an earlier recovery kept it
                kept = f"{kept}-{secrets.token_hex(4)}"
                os.link(path, kept)
    return kept
