"""`needed`: a context in which an integration imports its library. If this fails, the error says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(integration: str, library: str, package: str, *, install: str | None = None) -> Iterator[None]:
    """Raise an error that says what to install if the library cannot be imported within the context.

    Args:
        integration: the name of the module that needs the library. Its last part is the name of the extra.
        library: the library's name, for the error message.
        package: the name of the top-level package that is imported.
        install: what to pass to ``pip install``; by default, asyncrec with the extra.

    Raises:
        ModuleNotFoundError: the library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        what = install or f"'asyncrec[{integration.rpartition('.')[2]}]'"
        raise ModuleNotFoundError(
            f"{integration} needs {library}, which is not installed: pip install {what}", name=package
        ) from error
