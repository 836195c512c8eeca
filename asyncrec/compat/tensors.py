"""TensorFlow where it is installed: two of the older systems give a ``tf.data.Dataset``, and are useful without it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

__all__ = ["found_tensorflow"]


def found_tensorflow() -> Any:
    """The module ``tensorflow``, imported now; `None` where it is not installed."""
    if find_spec("tensorflow") is None:
        return None
    import tensorflow

    return tensorflow
