"""Removing what a job has begun on a disk: its unfinished files, and in a spool its whole shards. Blocking."""

from __future__ import annotations

import os
from contextlib import suppress

from asyncrec.shards.journal import Journal, leftovers_of
from asyncrec.shards.naming import index_key, keys_key, with_maker
from asyncrec.storage.local import mapped_errors

__all__ = ["remove_leftovers", "remove_leftovers_of"]


def remove_leftovers(journal: Journal) -> list[str]:
    """Of all its shards; returns their names."""
    shards = leftovers_of(journal.folder, journal.note)
    for shard in shards:
        remove_leftovers_of(journal, shard)
    # A copy's sidecars hold the names of others; and one may be unfinished whose shard was not begun.
    note = journal.note
    ends = (f".{note.writer}.partial", f".{note.writer}~begun.partial")
    for folder in ("", "_index", "_keys"):
        path = os.path.join(journal.folder.folder, folder)
        with mapped_errors("listing", path), suppress(FileNotFoundError):
            for each in os.listdir(path):
                shard = each[1:].partition(".tfrecord.")[0] + ".tfrecord"
                begun = each.startswith(".") and each.endswith(ends) and note.begins(shard)
                # In a spool also whole ones: a power cut may bring names back that went before the shard's.
                whole = note.spool and folder != "" and note.begins(each.partition(".tfrecord.")[0] + ".tfrecord")
                if begun or whole:
                    with mapped_errors("deleting", each), suppress(FileNotFoundError):
                        journal.folder.disk.system.unlink(os.path.join(path, each))
    return shards


def remove_leftovers_of(journal: Journal, shard: str) -> None:
    """Of one shard, which is in the manifest or shall not be. The shard goes last: it is what is looked for."""
    note = journal.note
    home = journal.folder.owned_by(note.writer)
    beside = with_maker(note.name, shard, note.writer)
    # Journals of releases before 0.2 have their index and keys under the shard's own name.
    for key in dict.fromkeys((index_key(beside), index_key(shard), keys_key(beside), keys_key(shard), shard)):
        paths = [home.partial_of(key), *([home.begun_of(key)] if key != shard else [])]
        if note.spool:
            paths.append(home.path_of(key))
        for path in paths:
            with mapped_errors("deleting", str(path)), suppress(FileNotFoundError):
                home.disk.system.unlink(path)
