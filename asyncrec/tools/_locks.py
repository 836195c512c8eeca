"""`check_locks` tries whether locks keep two processes apart in a folder, and says when they prove a writer dead."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._local.lock import FileLock, try_flock
from asyncrec.storage._local.mounts import is_one_machines, mount_of
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.tools._doctor_report import Check


def check_locks(folder: LocalStorage) -> Check:
    """Lock a file there, and see that a second descriptor of it is refused the lock. Blocks."""
    path = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
    try:
        with mapped_errors("locking", path):
            lock = FileLock(open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), path)
            try:
                kind = mount_of(lock.fd)[0]
                second = open_own(path, os.O_RDWR)
                try:
                    refused = not try_flock(second)
                finally:
                    os.close(second)
            finally:
                lock.release()
    except OSError as error:
        return Check(name="locks", ok=False, detail=f"no writer opens here: {error}")
    finally:
        with suppress(OSError):
            os.unlink(path)
    where = f"a filesystem of the type {kind!r}" if kind else "a filesystem whose type the system does not tell"
    if not refused:
        detail = f"{where}, where a lock keeps nobody out: a writer that lives passes for dead"
    elif is_one_machines(kind):
        detail = f"{where}, which one machine mounts at a time: a lock proves a writer dead, also after a reboot"
    else:
        detail = (
            f"{where}, which several machines may mount: a lock proves a writer of this machine dead; one of another "
            "machine, or of this one before it booted again, counts as dead when it has been silent for two minutes"
        )
    return Check(name="locks", ok=refused, detail=detail)
