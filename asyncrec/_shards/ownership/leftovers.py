"""What a job has begun on a disk is removed: its unfinished files, and in a spool its whole shards. Blocks."""

from __future__ import annotations

from contextlib import suppress

from asyncrec._shards.journal.job_files import TAKEN, leftovers_of, sidecars_left_of
from asyncrec._shards.journal.journal import Journal
from asyncrec._shards.manifest.names import index_key, keys_key, with_maker
from asyncrec.storage._local.opening import own_file
from asyncrec.storage._local.storage import mapped_errors


def remove_leftovers(journal: Journal) -> list[str]:
    """Remove what is left of all shards of a job; returns their names."""
    shards = leftovers_of(journal.folder, journal.header)
    for shard in shards:
        remove_leftovers_of(journal, shard)
    # Those that no shard led to: a copy's have the ids of others in their names; and a disk that failed, or a power
    # cut, may have left an index whose shard is gone.
    for path in sidecars_left_of(journal.folder, journal.header):
        with mapped_errors("deleting", path), suppress(FileNotFoundError):
            journal.folder.disk.system.unlink(path)
    return shards


def remove_leftovers_of(journal: Journal, shard: str) -> None:
    """Remove what is left of one shard, which is in the manifest or never will be.

    The shard goes last: by it, the others are found.
    """
    header, folder = journal.header, journal.folder
    begun = [folder.owned_by(f"{header.writer}{end}") for end in ("", TAKEN)]
    sidecar_name = with_maker(header.name, shard, header.writer)
    for key in (index_key(sidecar_name), keys_key(sidecar_name), shard):
        paths = [each.partial_of(key) for each in begun] + ([begun[0].begun_of(key)] if key != shard else [])
        if header.spool:
            paths.append(folder.path_of(key))
        for path in paths:
            with mapped_errors("deleting", str(path)), suppress(FileNotFoundError):
                if own_file(str(path)):
                    folder.disk.system.unlink(path)
