"""`of_the_dead` describes the uncommitted records of dead writers, and how to recover them."""

from __future__ import annotations

from collections.abc import Iterable

from asyncrec.storage._registry import is_local

SPOOL = (
    "this is a spool, which holds records to be uploaded. To see its writers, run 'asyncrec watch {path}'; to "
    "upload records left by dead writers, run 'asyncrec recover {path} --to ...'"
)


def of_the_dead(path: str, dead: Iterable[tuple[str, bool]]) -> list[str]:
    """Return sentences that describe the records of a data set's dead writers, and how to recover them.

    Args:
        dead: for each dead writer, its kind and whether it had a spool.
    """
    jobs = set(dead)
    said = []
    if any(spool for _, spool in jobs):
        said.append(
            "Records in the spools of dead writers are not counted. Commit them with 'asyncrec recover SPOOL --to "
            f"{path}' on the machine that has the spool, or open a writer with the same spool there"
        )
    bare = {kind for kind, spool in jobs if not spool}
    if bare and is_local(path):
        other = "open a writer there, or run " if bare == {"rolling"} else "run "
        said.append(f"Records left by dead writers are not counted. To commit them, {other}'asyncrec recover {path}'")
    elif bare:
        folder = path.rpartition("/")[0]
        said.append(
            "Records that dead writers had not uploaded are lost, because these writers had no spool (spool=...). "
            f"To commit their complete shards, run 'asyncrec recover {path}'; to see their partial uploads, run "
            f"'asyncrec uploads {folder}'"
        )
    return said


def of_the_dead_shortly(path: str, dead: Iterable[tuple[str, bool]]) -> str:
    """Return only the commands that recover the records of dead writers, with a note if records are lost.

    Args:
        dead: for each dead writer, the command that recovers its records, and whether it had a spool.
    """
    jobs = list(dict.fromkeys(dead))
    bare = any(not spool for _, spool in jobs)
    lost = "; records not yet uploaded are lost, because there was no spool" if bare and not is_local(path) else ""
    return " and ".join(dict.fromkeys(command for command, _ in jobs)) + lost
