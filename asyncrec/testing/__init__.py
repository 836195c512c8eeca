"""For authors of plugins: what every one must pass, and tools to make one fail.

- `StorageConformance`, `CommandConformance`, `FormatConformance`: the cases, for pytest; `replaces_case` marks one that
  the plugin cannot pass.
- `check_sink`, `check_source`: the same for a single sink or source; no pytest needed.
- `cancel_at_every_checkpoint`: cancels a function at each of its awaits in turn.
- `FlakyStorage`, `SlowStorage`: faults and slowness, around any storage.
- `LaxStorage`: objects in memory, kept as badly as by stores that were met.
- `virtual_backend`: an ``anyio_backend`` whose clock jumps while nothing runs, so that tests never sleep.
- `golden`: small TFRecord files as bytes, with the records in them.

Resolved on first use, so that only the kits import pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrec.testing import golden
    from asyncrec.testing.cancellation import cancel_at_checkpoint, cancel_at_every_checkpoint
    from asyncrec.testing.checks import check_sink, check_source
    from asyncrec.testing.clock import virtual_backend
    from asyncrec.testing.commands import CommandConformance
    from asyncrec.testing.conformance import StorageConformance
    from asyncrec.testing.faults import Fault, FlakyStorage, SlowStorage
    from asyncrec.testing.formats import FormatConformance
    from asyncrec.testing.kit import replaces_case
    from asyncrec.testing.stores import LaxStorage

__all__ = [
    "CommandConformance",
    "Fault",
    "FlakyStorage",
    "FormatConformance",
    "LaxStorage",
    "SlowStorage",
    "StorageConformance",
    "cancel_at_checkpoint",
    "cancel_at_every_checkpoint",
    "check_sink",
    "check_source",
    "golden",
    "replaces_case",
    "virtual_backend",
]

_HOMES = {
    "CommandConformance": "commands",
    "Fault": "faults",
    "FlakyStorage": "faults",
    "FormatConformance": "formats",
    "LaxStorage": "stores",
    "SlowStorage": "faults",
    "StorageConformance": "conformance",
    "cancel_at_checkpoint": "cancellation",
    "cancel_at_every_checkpoint": "cancellation",
    "check_sink": "checks",
    "check_source": "checks",
    "replaces_case": "kit",
    "virtual_backend": "clock",
}


def __getattr__(name: str) -> object:
    if name == "golden":
        return importlib.import_module(f"{__name__}.golden")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
