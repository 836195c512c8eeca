"""pyarrow, or an error that says how to install it."""

from __future__ import annotations

__all__ = ["pa"]

try:
    import pyarrow as pa
    import pyarrow.compute  # what `pa.compute` is
    import pyarrow.ipc  # noqa: F401  # what `pa.ipc` is
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pyarrow":
        raise
    raise ModuleNotFoundError(
        "asyncrec.integrations.arrow needs pyarrow, which is not installed: pip install 'asyncrec[arrow]'",
        name="pyarrow",
    ) from error
