"""`of_the_dead` says what dead writers left, and what sees to it: on a disk, in a spool, or in a store without one."""

from __future__ import annotations

from collections.abc import Iterable

from asyncrec.storage._registry import is_local

SPOOL = (
    "this is a spool, where records wait to be uploaded: 'asyncrec watch {path}' shows who is at work, and "
    "'asyncrec recover {path} --to ...' uploads what the dead left"
)


def of_the_dead(path: str, dead: Iterable[tuple[str, bool]]) -> list[str]:
    """Sentences on dead writers of a data set, given the kind of each and whether it had a spool."""
    jobs = set(dead)
    said = []
    if any(spool for _, spool in jobs):
        said.append(
            f"not counted is what the dead left in their spools: 'asyncrec recover SPOOL --to {path}' commits it, with "
            "the spool's folder, on the machine where that is; so does the next writer with that spool"
        )
    bare = {kind for kind, spool in jobs if not spool}
    if bare and is_local(path):
        other = "the next writer that opens there commits it, or " if bare == {"rolling"} else ""
        said.append(f"not counted is what the dead left: {other}'asyncrec recover {path}' sees to it")
    elif bare:
        folder = path.rpartition("/")[0]
        said.append(
            "what the dead had not uploaded is lost, for they had no spool (spool=...): "
            f"'asyncrec recover {path}' sees to what is there whole, and 'asyncrec uploads {folder}' shows what lies "
            "there in parts"
        )
    return said


def of_the_dead_shortly(path: str, dead: Iterable[tuple[str, bool]]) -> str:
    """The same in a few words, given of each the command that sees to what it left, and whether it had a spool."""
    jobs = list(dict.fromkeys(dead))
    bare = any(not spool for _, spool in jobs)
    lost = "; without a spool, what was not uploaded is lost" if bare and not is_local(path) else ""
    return " and ".join(dict.fromkeys(command for command, _ in jobs)) + lost
