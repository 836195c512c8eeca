"""Which file systems count as being in memory, so that no operation waits for a disk."""

from __future__ import annotations

import io
import os

import pytest

from asyncrec.storage._local import mounts


@pytest.mark.parametrize(
    ("filesystem", "swaps", "expected"),
    [("tmpfs", False, True), ("tmpfs", True, False), ("ramfs", True, True), ("ext4", False, False), ("", False, False)],
)
def test_tmpfs_is_in_memory_unless_swappable(
    filesystem: str, swaps: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_filesystem", lambda device: filesystem)
    monkeypatch.setattr(mounts, "_swaps", lambda: swaps)
    assert mounts.is_in_memory(0) is expected


def test_unknown_device_is_not_in_memory() -> None:
    assert mounts.is_in_memory(os.makedev(0xFFF, 0xFFFFF)) is False


_MOUNTS = """\
22 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw,errors=continue
40 22 0:25 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw
"""
_HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(
    ("device", "swaps", "expected"),
    [
        ((0, 25), _HEADING, True),
        ((0, 25), f"{_HEADING}/dev/sda2\tpartition\t1\t0\t-2\n", False),
        ((0, 25), None, False),
        ((98, 0), _HEADING, False),
        ((0, 26), _HEADING, False),
    ],
)
def test_linux_mount_and_swap_tables_are_parsed(
    device: tuple[int, int], swaps: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of swaps begins with a heading; a system without the table is assumed to swap."""

    def opened(path: str, **_: str) -> io.StringIO:
        text = {"/proc/self/mountinfo": _MOUNTS, "/proc/swaps": swaps}[path]
        if text is None:
            raise FileNotFoundError(path)
        return io.StringIO(text)

    monkeypatch.setattr(mounts, "open", opened, raising=False)
    assert mounts.is_in_memory(os.makedev(*device)) is expected


@pytest.mark.parametrize("table", ["", "22\n", "22 1 0:25 / /dev/shm rw -\n"])
def test_malformed_mount_table_means_not_in_memory(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "open", lambda path, **_: io.StringIO(table), raising=False)
    assert mounts.is_in_memory(os.makedev(0, 25)) is False
