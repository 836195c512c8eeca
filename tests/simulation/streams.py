"""``os.path``, file objects and folder entries, implemented on top of `System`."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator
from typing import Any

__all__ = ["Entries", "Entry", "Raw", "SystemPath"]


class SystemPath:
    """A replacement for `os.path`."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        found = getattr(posixpath, name)
        setattr(self, name, found)  # cached
        return found

    def _mode(self, path: Any) -> bool | None:
        """Return whether the path is a folder, or `None` if it does not exist."""
        try:
            return bool(self._system.node(path, "stat").folder)
        except (OSError, ValueError):
            return None

    def exists(self, path: Any) -> bool:
        return self._mode(path) is not None

    lexists = exists

    def isdir(self, path: Any) -> bool:
        return self._mode(path) is True

    def isfile(self, path: Any) -> bool:
        return self._mode(path) is False

    def islink(self, path: Any) -> bool:
        return False

    def getsize(self, path: Any) -> int:
        return int(self._system.stat(path).st_size)


class Raw(io.RawIOBase):
    def __init__(self, system: Any, fd: int) -> None:
        self._system = system
        self._fd = fd

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._system.read(self._fd, len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def write(self, data: Any) -> int:
        return int(self._system.write(self._fd, data))

    def close(self) -> None:
        if not self.closed:
            self._system.close(self._fd)
            super().close()


class Entry:
    def __init__(self, system: Any, folder: str, name: str) -> None:
        self._system = system
        self.name = name
        self.path = f"{folder.rstrip('/')}/{name}"

    def is_dir(self, **_: Any) -> bool:
        return bool(self._system.path.isdir(self.path))

    def is_file(self, **_: Any) -> bool:
        return bool(self._system.path.isfile(self.path))

    def is_symlink(self) -> bool:
        return False

    def stat(self, **_: Any) -> Any:
        return self._system.stat(self.path)


class Entries:
    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

    def close(self) -> None:
        pass
