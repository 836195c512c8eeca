"""Test tools for plugin authors: the cases that every plugin must pass, and storages that fail on purpose.

- `StorageConformance`, `CommandConformance`, `FormatConformance`: the cases, for pytest. `replaces_case` marks a
  replacement for a case that the plugin cannot pass.
- `check_sink`, `check_source`: the cases for a single sink or source, without pytest.
- `cancel_at_every_checkpoint`: cancels a function at each of its awaits in turn.
- `FlakyStorage`, `SlowStorage`: add faults or delays to any storage.
- `LaxStorage`: a storage in memory with the weak guarantees of some real stores.
- `virtual_backend`: an ``anyio_backend`` whose clock jumps ahead when no task can run, so that tests never sleep.
- `golden`: small TFRecord files as bytes, with their records.

Names are resolved on first use, so that only the kits import pytest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from asyncrec._lazy import lazy
from asyncrec.testing import golden as golden

if TYPE_CHECKING:
    from asyncrec.testing._cancellation import cancel_at_checkpoint as cancel_at_checkpoint
    from asyncrec.testing._cancellation import cancel_at_every_checkpoint as cancel_at_every_checkpoint
    from asyncrec.testing._clock import virtual_backend as virtual_backend
    from asyncrec.testing._commands import CommandConformance as CommandConformance
    from asyncrec.testing._conformance import StorageConformance as StorageConformance
    from asyncrec.testing._faults import Fault as Fault
    from asyncrec.testing._faults import FlakyStorage as FlakyStorage
    from asyncrec.testing._faults import SlowStorage as SlowStorage
    from asyncrec.testing._formats import FormatConformance as FormatConformance
    from asyncrec.testing._kit import replaces_case as replaces_case
    from asyncrec.testing._sink_checks import check_sink as check_sink
    from asyncrec.testing._source_checks import check_source as check_source
    from asyncrec.testing._stores import LaxStorage as LaxStorage

# pytest does not rewrite the assertions of installed modules, so failed cases would show no values. Register these
# modules for rewriting before they are imported.
if (_pytest := sys.modules.get("pytest")) is not None:
    _pytest.register_assert_rewrite(
        *(
            f"asyncrec.testing.{name}"
            for name in ("_checks", "_commands", "_conformance", "_formats", "_kit", "_sink_checks", "_source_checks")
        ),
        "asyncrec.testing._storage",
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.testing._cancellation": "cancel_at_checkpoint cancel_at_every_checkpoint",
        "asyncrec.testing._clock": "virtual_backend",
        "asyncrec.testing._commands": "CommandConformance",
        "asyncrec.testing._conformance": "StorageConformance",
        "asyncrec.testing._faults": "Fault FlakyStorage SlowStorage",
        "asyncrec.testing._formats": "FormatConformance",
        "asyncrec.testing._kit": "replaces_case",
        "asyncrec.testing._sink_checks": "check_sink",
        "asyncrec.testing._source_checks": "check_source",
        "asyncrec.testing._stores": "LaxStorage",
    },
)
__all__ += ["golden"]
