"""Marks and claims show which jobs work on a data set or died doing so, and which of them may use its name.

A job's mark exists from before its first object until after its last one, so the owner of every object under the job's
names can be found. In a local folder, the mark is the locked header (`_shards.journal.header`). In a store, it is
object 0 of the job's log, and a locked file on the job's machine shows whether the job is alive
(`_shards.ownership.census`), unless the job is detached or the file could not be created.

A job that must be the only one to use a name, because it has fixed shards or ``mode="new"``, creates a claim. Claims
are numbered and created exclusively, and the highest one counts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.header import MOST_BYTES, JobHeader
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.listed_object import get_listed
from asyncrec._shards.manifest.names import begin_key, begin_of, claim_key, claim_of, manifest_prefix
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim on a data set's name.

    Attributes:
        number: the number of the claim on this name. The claim with the highest number counts.
        writer, since: the id and the start time of the job that created the claim.
        plain: whether the job's fixed shards have plain names, without its id. This is only allowed if no other job has
            ever used such names.
    """

    number: int
    writer: str
    since: str = ""
    plain: bool

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes, number: int) -> Claim:
        try:
            data = json.loads(content)
            claim = cls(number=number, writer=data["writer"], since=data["since"], plain=data["plain"])
            if isinstance(claim.writer, str) and isinstance(claim.since, str) and isinstance(claim.plain, bool):
                return claim
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        # An unreadable claim still counts: some job wanted the name, and may have used the plain names.
        return cls(number=number, writer="", plain=True)


async def put_mark(folder: Storage, header: JobHeader) -> None:
    """Create the mark of a job.

    Raises:
        ObjectExistsError: a job with this id is running, or has died.
    """
    try:
        await create(folder, begin_key(header.name, header.writer), await in_thread(header.encode), shield=False)
    except ObjectExistsError as error:
        raise ObjectExistsError(
            f"{join(folder.root, header.name)}: a writer with the id {header.writer} is running or has not been "
            f"cleaned up; recover the data set first ({recover_command(join(folder.root, header.name))}), or use "
            "another writer_id"
        ) from error


async def remove_mark(folder: Storage, name: str, writer: str) -> None:
    """Remove the mark of an ended job, after making sure that deleted objects cannot reappear after a power failure."""
    await in_thread(home_of(folder).sync, name)  # if the job has a spool, its header is there
    await folder.delete(begin_key(name, writer))


async def remove_own_mark(folder: Storage, header: JobHeader) -> None:
    """Remove the mark of a job, unless another job with the same id created it."""
    key = begin_key(header.name, header.writer)
    try:
        own = await folder.get(key, max_bytes=MOST_BYTES) == header.encode()
    except (ObjectNotFoundError, ValueError):
        return
    if own:
        await folder.delete(key)


async def load_mark(folder: Storage, name: str, writer: str) -> JobHeader | None:
    """Load the header in a mark. Return `None` if there is no mark, or if it does not contain a valid header."""
    try:
        content = await get_listed(folder, begin_key(name, writer), max_bytes=MOST_BYTES)
    except ValueError:
        return None
    header = None if content is None else JobHeader.decode(content)
    return header if header is not None and (header.name, header.writer) == (name, writer) else None


async def find_begun(folder: Storage, name: str) -> list[str]:
    """Return the ids of the jobs that have a mark, even an unreadable one."""
    prefix = manifest_prefix(name)
    found = [begin_of(info.key[len(prefix) :]) async for info in folder.list_objects(prefix)]
    return [writer for writer in found if writer is not None]


async def find_marks(folder: Storage, name: str, *, most: int | None = None) -> list[JobHeader]:
    """Return the headers in a data set's marks. Their jobs have not ended, but may be alive or dead.

    If there are more than ``most`` marks, read only ``most`` of them, chosen at random, because each needs a request.
    """
    writers = await find_begun(folder, name)
    if most is not None and len(writers) > most:
        writers = [writers.pop(secrets.randbelow(len(writers))) for _ in range(most)]
    load: Callable[[str], Awaitable[JobHeader | None]] = partial(load_mark, folder, name)
    return [header for header in await for_each(load, writers) if header is not None]


async def find_claims(folder: Storage, name: str) -> list[Claim]:
    """Return all claims on a name, in the order of their numbers."""
    prefix = manifest_prefix(name)
    numbers = {}
    async for info in folder.list_objects(f"{prefix}_claim-"):
        if (number := claim_of(info.key[len(prefix) :])) is not None:
            numbers[info.key] = number

    async def load(key: str) -> Claim | None:
        content = await get_listed(folder, key, max_bytes=MOST_BYTES)
        return None if content is None else Claim.decode(content, numbers[key])

    return [claim for claim in await for_each(load, sorted(numbers, key=numbers.__getitem__)) if claim is not None]


async def names_of(folder: Storage, header: JobHeader) -> JobNames:
    """Return the names of a job's shards. Fixed shards have plain names if the job's last claim says so.

    A fixed job without a claim has not created any shards.
    """
    if header.num_shards is None:
        return JobNames.of(header)
    claims = [claim for claim in await find_claims(folder, header.name) if claim.writer == header.writer]
    return JobNames.of(header, plain=bool(claims) and claims[-1].plain)


async def delete_claims(folder: Storage, name: str, writer: str) -> None:
    """Delete the claims of a job."""
    for claim in await find_claims(folder, name):
        if claim.writer == writer:
            await folder.delete(claim_key(name, claim.number))


async def put_claim(folder: Storage, name: str, claim: Claim) -> None:
    """Create a claim.

    Raises:
        ConflictError: another job created the claim with this number first.
    """
    try:
        await create(folder, claim_key(name, claim.number), claim.encode(), shield=False)
    except ObjectExistsError as error:
        raise ConflictError(
            f"{join(folder.root, name)}: another writer claimed this name at the same moment and now writes the "
            "data set; open a writer again later, or choose another name"
        ) from error
