"""`Redacting`: a filter for loggers of other people's clients, which write down what is secret when they debug."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable


class Redacting(logging.Filter):
    """A filter that strikes secrets out of messages, and of the tracebacks that go with them.

    Args:
        strike: gives a text without its secrets.
    """

    def __init__(self, strike: Callable[[str], str]) -> None:
        super().__init__()
        self._strike = strike
        self._formatter = logging.Formatter()

    def install(self, loggers: Iterable[str]) -> None:
        """Let nothing secret through these. Repeated, it does nothing."""
        for name in loggers:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (clean := self._strike(text)) != text:
            record.msg, record.args = clean, ()
        if record.exc_info:
            # As text, which is struck through; whoever formats the record takes it in place of the error.
            record.exc_text = self._strike(self._formatter.formatException(record.exc_info))
            record.exc_info = None
        return True
