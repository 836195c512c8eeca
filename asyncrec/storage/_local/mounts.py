"""`is_in_memory` tells a filesystem that has no disk, such as a tmpfs, by what Linux says of mounts and swap."""

from __future__ import annotations

import os

__all__ = ["is_in_memory"]


def is_in_memory(device: int) -> bool:
    """Tell whether the filesystem with this ``st_dev`` lives in memory, and stays there. Blocks.

    A tmpfs does not take RWF_NOWAIT, and Python has no statfs: Linux's table of mounts says (proc_pid_mountinfo(5)).
    Where the system swaps, a page of it may have to be waited for, and the answer is no.
    """
    filesystem = _filesystem(device)
    return filesystem == "ramfs" or (filesystem == "tmpfs" and not _swaps())


def _filesystem(device: int) -> str:
    """Look up the type of the filesystem mounted from a device; it is empty where the system does not say."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                fields, _, filesystem = line.partition(" - ")
                if fields.split()[2] == wanted:
                    return filesystem.split()[0]
    except (OSError, IndexError):  # another system, or another form of the table
        pass
    return ""


def _swaps() -> bool:
    """Tell whether the system has anything to swap to; it is taken to have where it does not say."""
    try:
        with open("/proc/swaps", encoding="utf-8", errors="surrogateescape") as swaps:
            return len(swaps.readlines()) > 1  # the first is the heading
    except OSError:
        return True
