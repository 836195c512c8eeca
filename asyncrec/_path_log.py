"""A logger whose messages begin with a path. The path is also a field of each log record."""

from __future__ import annotations

import logging
from typing import Any


class PathLog:
    """A logger of lines such as ``s3://crawl/pages: ...``. Keyword arguments become fields of the log record."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, path: str, words: str, *args: object, **fields: Any) -> None:
        self._tell(logging.DEBUG, path, words, args, fields)

    def info(self, path: str, words: str, *args: object, **fields: Any) -> None:
        self._tell(logging.INFO, path, words, args, fields)

    def warning(self, path: str, words: str, *args: object, **fields: Any) -> None:
        self._tell(logging.WARNING, path, words, args, fields)

    def error(self, path: str, words: str, *args: object, **fields: Any) -> None:
        self._tell(logging.ERROR, path, words, args, fields)

    def log(self, level: int, path: str, words: str, *args: object, **fields: Any) -> None:
        self._tell(level, path, words, args, fields)

    def _tell(self, level: int, path: str, words: str, args: tuple[object, ...], fields: dict[str, Any]) -> None:
        self._logger.log(level, f"%s: {words}", path, *args, extra={"path": path, **fields}, stacklevel=3)
