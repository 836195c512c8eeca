"""Ray Data, or an error that says how to install it."""

from __future__ import annotations

__all__ = ["BlockAccessor", "BlockMetadata", "Datasink", "Datasource", "ReadTask", "ray"]

try:
    import ray
    import ray.data
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasink, Datasource, ReadTask
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":
        raise
    raise ModuleNotFoundError(
        "asyncrec.integrations.ray needs Ray Data, which is not installed: pip install 'asyncrec[ray]'", name="ray"
    ) from error
