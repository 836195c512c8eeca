"""`JobFiles`: what a job has on a disk: its journals, its sidecars, and when anything of them last changed.

The names follow from the header's, so another user may put something there: a file, a link, a pipe. Only this user's
own files count as the job's. Anything else is neither read nor removed, and keeps no job from ending. Everything here
blocks, and is for worker threads.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.headers import header_path, names_in
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.status import status_path
from asyncrec._shards.manifest.names import index_key, keys_key, progress_key, with_maker
from asyncrec.storage._local.disk import partial_name
from asyncrec.storage._local.opening import create_file, own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

# Stands behind the maker in the name of an unfinished file that another process has taken.
_TAKEN = "~taken"
# Sixty statuses of the default, and the longest that Linux's NFS believes what it has remembered of a file.
_SILENT_SECONDS = 120.0


class JobFiles:
    """The unfinished files of one job in a folder, and in a spool its whole shards.

    Attributes:
        folder: the folder that has them.
    """

    def __init__(self, folder: LocalStorage, header: JobHeader) -> None:
        self.folder = folder
        self._header = header
        self._writer = header.writer
        # Whatever may be the job's: a file on this disk is this user's own, and no other job has this id.
        self._names = JobNames.of(header, plain=True)
        self._owned = folder.owned_by(header.writer)
        self._taken = folder.owned_by(f"{header.writer}{_TAKEN}")
        self._ends = (f".{header.writer}.partial", f".{header.writer}{_TAKEN}.partial")

    def shards(self) -> list[str]:
        """List the shards that the job has begun and not finished, in order; in a spool, finished ones too."""
        return sorted({shard for shard, path in self._shards() if self._is_own(path)})

    def any_left(self) -> bool:
        """Return whether anything is left of what the job has begun. Then its header has to stay: it leads to that."""
        return bool(self.shards() or self._own_sidecars())

    def strangers(self) -> list[str]:
        """List the paths of files with names of the job's files that are not this user's own."""
        paths = [path for _, path in self._shards()]
        return [path for path in (*paths, *self._sidecars()) if not self._is_own(path)]

    def are_silent(self) -> bool:
        """Return whether nothing of the job has changed for two minutes, by the filesystem's clock, not this machine's.

        False if that clock cannot be read, because nothing can be written there.
        """
        folder, system, header = self.folder, self.folder.disk.system, self._header
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
        """Rename what the job has begun, so that it can publish nothing more of it if it is alive after all.

        The journal of each shard goes first: the job publishes it last. A shard that was taken before stays as it is.
        """
        paths = [(str(self._owned.partial_of(shard)), str(self._taken.partial_of(shard))) for shard in self.shards()]
        end, taken = self._ends
        paths += [(path, path.removesuffix(end) + taken) for path in self._own_sidecars() if path.endswith(end)]
        for path, to in paths:
            with mapped_errors("renaming", path), suppress(FileNotFoundError):
                if not os.path.lexists(to):
                    self.folder.disk.system.replace(path, to)

    def to_read(self, shard: str) -> tuple[str, str | None, list[str], str]:
        """Return the paths of a taken shard and of its keys, whole ones in a spool, and all other names of both.

        And the path that its positions would have (`positions_file`).
        """
        path = str(self.folder.path_of(shard))
        if not (self._header.spool and own_file(path)):
            path = str(self._taken.partial_of(shard))
        sidecar_name = with_maker(self._names.name, shard, self._writer)
        positions = str(self._taken.partial_of(progress_key(sidecar_name)))
        key = keys_key(sidecar_name)
        # Keys are published before the shard.
        keys = next(filter(own_file, (str(self.folder.path_of(key)), str(self._taken.partial_of(key)))), None)
        names = [*self._other_names(path), *(self._other_names(keys) if keys is not None else ())]
        return path, keys, names, positions

    def is_whole(self, shard: str) -> bool:
        """Return whether a whole shard is in a spool, to be uploaded."""
        return self._header.spool and own_file(str(self.folder.path_of(shard)))

    def remove(self) -> list[str]:
        """Remove what is left of all shards; return their names."""
        shards = self.shards()
        for shard in shards:
            self.remove_shard(shard)
        # Those that no shard led to: a copy's have the ids of others in their names; and a disk that failed, or a power
        # cut, may have left an index whose shard is gone.
        for path in self._own_sidecars():
            self._unlink(path)
        return shards

    def remove_shard(self, shard: str) -> None:
        """Remove what is left of one shard, which is in the manifest or never will be.

        The shard goes last: the others are found by it.
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
        """Paths of indexes and keys that it has begun and not finished; in a spool, of finished ones too.

        They may have no shard: it was not begun yet, or was removed by a disk that then failed to remove these.
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
        """List the other paths of a file of the job: unfinished, taken, published and kept."""
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
    """Give a damaged journal a second name, which no recovery removes; return that name."""
    kept = kept_path(path)
    with mapped_errors("saving", kept):
        try:
            os.link(path, kept)
        except FileExistsError:
            if os.lstat(path).st_ino != os.lstat(kept).st_ino:  # else an earlier recovery has kept it
                kept = f"{kept}-{secrets.token_hex(4)}"
                os.link(path, kept)
    return kept
