"""Helpers for the three compat modules that return a ``tf.data.Dataset`` if TensorFlow is installed.

Files that TensorFlow can read are read by its own operations, as in the original libraries. For other stores, the same
operations read from Python generators, one per file, so that records come in the same order for the same seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from asyncrec.storage._local.disk import is_partial


def found_tensorflow() -> Any:
    """Import and return the module ``tensorflow``, or return `None` if it is not installed."""
    if find_spec("tensorflow") is None:
        return None
    import tensorflow

    return tensorflow


def is_read_by(tensorflow: Any, path: str | os.PathLike[str]) -> bool:
    """Return whether TensorFlow has a file system for the path: it is local or ``gs://``, or a plugin supports it.

    The original libraries read such files with ``tf.data``. Unlike a Python generator, a pipeline of TensorFlow's own
    operations can be sharded by file among workers, saved in a checkpoint, and sent to a tf.data service.
    """
    scheme, colon, _ = os.fspath(path).partition("://")
    return (scheme if colon else "") in tensorflow.io.gfile.get_registered_schemes()


def read_here(tensorflow: Any, batches: Callable[..., Iterator[list[bytes]]], *arguments: Any) -> Any:
    """Return a ``tf.data.Dataset`` of the records in the lists that ``batches`` yields when called with ``arguments``.

    The arguments may be tensors.
    """
    spec = tensorflow.TensorSpec((None,), tensorflow.string)
    return tensorflow.data.Dataset.from_generator(batches, output_signature=spec, args=arguments).unbatch()


def matching(tensorflow: Any, pattern: str) -> list[str]:
    """Return the files that match a pattern, in TensorFlow's order, without asyncrec's unfinished files."""
    found = [name.decode() for name in tensorflow.io.matching_files(pattern).numpy().tolist()]
    return [name for name in found if not is_partial(os.path.basename(name))]
