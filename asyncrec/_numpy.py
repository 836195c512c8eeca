"""NumPy, imported on first use. Importing it takes 60 ms, and a writer that uses the C module does not need it.

Import it with ``from asyncrec._numpy import np``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        """A stand-in for the module. On first use, each name is stored as an attribute, so later look-ups are fast."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module("numpy"), name)
            setattr(self, name, value)
            return value

    np = _NumPy()

__all__ = ["is_warm", "np"]


def is_warm() -> bool:
    """Return whether every part of NumPy that asyncrec uses is imported: the first call of `numpy.unique` imports
    `numpy.ma`.
    """
    return "numpy.ma" in sys.modules
