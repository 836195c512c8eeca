"""Facts about mounts on Linux: which filesystems are in memory, and where a lock proves that its last holder is dead.

If a lock can be acquired, its previous holder is dead, provided that the holder's lock would have been visible here. A
lock is visible to all processes of the same machine that use the same mount. Locks of other machines may be invisible
on NFS (with ``nolock``), sshfs, 9p, virtiofs and Lustre, and in sandboxes.
"""

from __future__ import annotations

import os
import socket

# Filesystems that only one kernel can mount at a time, because they are in its memory or on a device to which no other
# kernel may write. Therefore, a lock with a different boot id was acquired before a reboot. Filesystems of clusters
# (gfs2, ocfs2), networks, FUSE and hypervisors are excluded, as are unknown filesystems.
_ONE_MACHINE = frozenset(
    (
        *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "reiserfs", "xfs", "zfs"),
        *("exfat", "msdos", "ntfs3", "vfat"),
        *("overlay", "ramfs", "tmpfs"),
    )
)


def is_in_memory(device: int) -> bool:
    """Return whether the filesystem with this ``st_dev`` always stays in memory. Blocks.

    A tmpfs does not support RWF_NOWAIT, and Python has no statfs, so this reads Linux's mount table
    (proc_pid_mountinfo(5)). If there is swap space, reading a tmpfs may wait for a disk, so the result is `False`.
    """
    filesystem = _filesystem(device)
    return filesystem == "ramfs" or (filesystem == "tmpfs" and not _swaps())


def lock_proves(fd: int, machine: str) -> bool:
    """Return whether holding this file's lock proves that its previous holder on ``machine`` is dead. Blocks.

    ``machine`` is the result of `this_machine` in the previous holder's process.
    """
    return is_one_machines(mount_of(fd)[0]) or machine == this_machine(fd)


def is_one_machines(kind: str) -> bool:
    """Return whether only one machine at a time can mount a filesystem of this type."""
    return kind in _ONE_MACHINE


def this_machine(fd: int) -> str:
    """Return an identifier of the scope in which a lock on this file is visible. Blocks.

    It identifies this machine, until it reboots, and the file's mount.

    The host name is used only if the system has no boot id (macOS), because it changes each time a container starts.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            machine = boot.read().strip()
    except (OSError, ValueError):
        machine = socket.gethostname()
    return f"{machine} {mount_of(fd)[1]}"


def mount_of(fd: int) -> tuple[str, str]:
    """Return the type and the device of the filesystem that contains an open file. Blocks.

    The type is empty if it is unknown.
    """
    device = os.fstat(fd).st_dev
    try:
        # Find the mount by its number, because the device of a file on btrfs or an overlay is not in the mount table.
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as told:
            number = next(line.split()[1] for line in told if line.startswith("mnt_id:"))
        return next((kind, name) for each, name, kind in _mounts() if each == number)
    except (OSError, IndexError, StopIteration):  # another operating system, or a different table format
        return _filesystem(device), f"{os.major(device)}:{os.minor(device)}"


def _filesystem(device: int) -> str:
    """Return the type of the filesystem on a device, or an empty string if it is unknown."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return next((kind for _, name, kind in _mounts() if name == wanted), "")


def _mounts() -> list[tuple[str, str, str]]:
    """Return the number, device and type of each mount. The list ends where the table cannot be parsed."""
    mounts = []
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            for line in table:
                fields, _, filesystem = line.partition(" - ")
                number, _, device = fields.split()[:3]
                mounts.append((number, device, filesystem.split()[0]))
    except (OSError, IndexError, ValueError):  # another operating system, or a different table format
        pass
    return mounts


def _swaps() -> bool:
    """Return whether the system has swap space; `True` if that is unknown."""
    try:
        with open("/proc/swaps", encoding="utf-8", errors="surrogateescape") as swaps:
            return len(swaps.readlines()) > 1  # the first line is the heading
    except OSError:
        return True
