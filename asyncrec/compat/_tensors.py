"""Use TensorFlow if it is installed: three of the older systems return a ``tf.data.Dataset``.

Files that TensorFlow can read are read by its own operations, as in the originals. Records of other stores come from
Python generators, one for each file, within the same operations: so order and seeds are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from asyncrec.storage._local.disk import is_partial


def found_tensorflow() -> Any:
    """Import the module ``tensorflow``; `None` if it is not installed."""
    if find_spec("tensorflow") is None:
        return None
    import tensorflow

    return tensorflow


def is_read_by(tensorflow: Any, path: str | os.PathLike[str]) -> bool:
    """Return whether TensorFlow has a file system for the path: such as a local one, ``gs://``, or a plugin's.

    The older systems read such files by ``tf.data``. A pipeline of its own operations, unlike one of Python generators,
    can be dealt to workers by file, saved in a checkpoint, and sent to a service.
    """
    scheme, colon, _ = os.fspath(path).partition("://")
    return (scheme if colon else "") in tensorflow.io.gfile.get_registered_schemes()


def read_here(tensorflow: Any, batches: Callable[..., Iterator[list[bytes]]], *arguments: Any) -> Any:
    """Make a dataset of the records that ``batches`` yields for the arguments, which may be tensors."""
    spec = tensorflow.TensorSpec((None,), tensorflow.string)
    return tensorflow.data.Dataset.from_generator(batches, output_signature=spec, args=arguments).unbatch()


def matching(tensorflow: Any, pattern: str) -> list[str]:
    """List the files that TensorFlow's glob finds, sorted, without those that an asyncrec writer has not finished."""
    found = [name.decode() for name in tensorflow.io.matching_files(pattern).numpy().tolist()]
    return [name for name in found if not is_partial(os.path.basename(name))]
