"""`report` and the command ``asyncrec report``, which create an HTML page about a data set.

    plugin.py      the hook
    command.py     ``asyncrec report``
    making.py      `report`: selection of records (gather.py), reading (reading.py, and reading_ahead.py for several
                   shards at a time), statistics (profile.py, numbers.py, strings.py), rendering (page.py)

`report` and `PageReport` are imported on first use.
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
