"""Which filesystems have no disk to wait for."""

from __future__ import annotations

import os

import pytest

from asyncrec.storage._local import mounts


@pytest.mark.parametrize(
    ("filesystem", "swaps", "expected"),
    [("tmpfs", False, True), ("tmpfs", True, False), ("ramfs", True, True), ("ext4", False, False), ("", False, False)],
)
def test_a_tmpfs_is_in_memory_unless_its_pages_may_be_swapped_out(
    filesystem: str, swaps: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_filesystem", lambda device: filesystem)
    monkeypatch.setattr(mounts, "_swaps", lambda: swaps)
    assert mounts.is_in_memory(0) is expected


def test_what_the_system_says_of_a_device_that_it_does_not_know_is_no() -> None:
    assert mounts.is_in_memory(os.makedev(0xFFF, 0xFFFFF)) is False
