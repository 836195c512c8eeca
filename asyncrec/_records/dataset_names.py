"""Where a data set of a name is found: what the reader of one file needs of `asyncrec._shards.manifest.names`."""

from __future__ import annotations

# Below it, a folder for each data set.
MANIFESTS = "_manifest/"


def manifest_prefix(name: str) -> str:
    """Return the folder of a data set's segments."""
    return f"{MANIFESTS}{name}/"


def first_fixed_shard(name: str) -> str:
    """Return how the name of a data set's first fixed shard begins, TensorFlow's too."""
    return f"{name}-00000-of-"
