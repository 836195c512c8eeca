"""`report` makes an HTML page about a data set; so does the command ``asyncrec report``.

    plugin.py      the hook
    command.py     ``asyncrec report``
    making.py      `report`: what to read (gather.py), reading (reading.py; reading_ahead.py: several shards at once),
                   counting (profile.py, numbers.py, strings.py), showing (page.py)

`report` and `PageReport` are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .making import PageReport as PageReport
    from .making import report as report

__all__ = ["PageReport", "report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import making

    return getattr(making, name)
