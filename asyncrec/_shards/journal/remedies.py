"""Shell commands with which a user can recover or abandon a job, quoted for use in messages."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from asyncrec._shards.journal.header import JobHeader


def recover_command(path: str, *, to: str | None = None, abandon: str | None = None) -> str:
    """Return the shell command that does what `asyncrec.recover` does, in quotation marks, for use in messages."""
    words = ["asyncrec", "recover", path, *(["--to", to] if to else []), *(["--abandon", abandon] if abandon else [])]
    command = shlex.join(words)
    quote = '"' if "'" in command else "'"
    return f"{quote}{command}{quote}"


def command_for(header: JobHeader, where: str, *, abandon: bool = False) -> str:
    """Return the command that recovers or abandons a job. ``where`` is the path of the job's data set or spool."""
    return recover_command(where, to=header.url if header.spool else None, abandon=header.writer if abandon else None)


def told_dead(header: JobHeader, where: str) -> str:
    """Return a message that says a job is dead and what to do about it. ``where`` is the path to pass to `recover`."""
    recover = command_for(header, where)
    discard = f"{command_for(header, where, abandon=True)} discards the records"
    if header.kind == "rolling":
        return (
            f"the writer {header.writer} died and left uncommitted records; {recover} adds them to the data "
            f"set, {discard}"
        )
    if header.kind == "fixed":
        return (
            f"the writer {header.writer} died before it committed its fixed shards; {recover} commits them "
            f"if all are complete or their flush was acknowledged; {discard}"
        )
    return (
        f"the writer {header.writer} died before it committed its shards, which are published together or not "
        f"at all, so none of them is in the data set; {recover} removes the remaining files"
    )


def age_of(header: JobHeader) -> float:
    """Return the number of seconds since the job began, by this machine's clock; 0 if the header has no start time."""
    if not header.since:
        return 0.0
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(header.since)).total_seconds())
