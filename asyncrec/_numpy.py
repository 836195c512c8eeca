"""NumPy, imported when something of it is first used: a writer with C needs none of it, and it takes 60 ms.

from asyncrec._numpy import np
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        """Stands for the module. What was used once is an attribute of its own, and found as fast as there."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module("numpy"), name)
            setattr(self, name, value)
            return value

    np = _NumPy()

__all__ = ["is_warm", "np"]


def is_warm() -> bool:
    """Return whether all that we use of NumPy is imported: `numpy.unique` imports a part when it is first called."""
    return "numpy.ma" in sys.modules
