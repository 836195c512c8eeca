"""Find the backend that serves a path.

Plugins provide backends through the hook ``asyncrec_storage_factories``. They are imported when a path that no built-in
backend serves is first opened.

A path is local unless it has a scheme: ``scheme://``, or ``prefix:`` if that prefix was registered with
`register_writer_factory`. If two backends serve the same scheme, ``scheme+name://`` chooses one of them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import (
    AmbiguousSchemeError,
    ArgumentTypeError,
    ArgumentValueError,
    UnknownSchemeError,
    UnsupportedBackendError,
)
from asyncrec.plugins._manager import DISABLE
from asyncrec.storage._backends import Backends
from asyncrec.storage._base import Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._foreign import ForeignFactory, ForeignStorage
from asyncrec.storage._url import join, redact, scheme_of, split_path

# The distribution that provides each scheme; "" for a scheme that no known distribution provides.
_PACKAGES = {
    "s3": "asyncrec-s3",
    "s3a": "asyncrec-s3",
    "gs": "asyncrec-gcs",
    "gcs": "asyncrec-gcs",
    "file+aiofiles": "asyncrec-aiofiles",
    **dict.fromkeys(("abfs", "abfss", "az"), "asyncrec-azure"),
    **dict.fromkeys(("http", "https"), "asyncrec-http"),
    **dict.fromkeys(("ftp", "hdfs", "hf", "sftp", "webhdfs"), "asyncrec-fsspec"),
    "azure": "",
}

_backends = Backends()
registered: dict[str, StorageFactory | ForeignFactory] = {}  # keyed by the prefix before the first colon


def register_writer_factory(prefix: str, factory: StorageFactory | ForeignFactory) -> None:
    """Route ``prefix:...`` and ``prefix://...`` to ``factory``, instead of a plugin or an earlier factory.

    Args:
        prefix: the text before the first colon, exactly as in paths.
        factory: a `StorageFactory`, or a simple object with the sync or async methods ``open(path)``, which returns a
            writable file object, and ``directory_check(path)``. Both methods receive the path exactly as the user
            passed it.

    Raises:
        ValueError: the prefix is empty or contains a colon.
        TypeError: the factory is neither a `StorageFactory` nor such an object.
    """
    if not isinstance(prefix, str):
        raise ArgumentTypeError(f"a prefix must be a str, not {type(prefix).__name__}")
    if not prefix or ":" in prefix:
        raise ArgumentValueError(f"the prefix {prefix!r} is empty or contains ':'; pass only the part before the colon")
    if not isinstance(factory, StorageFactory) and not (
        callable(getattr(factory, "open", None)) and callable(getattr(factory, "directory_check", None))
    ):
        raise ArgumentTypeError(
            f"the factory for {prefix!r} is neither a StorageFactory nor an object with open(path) and "
            f"directory_check(path): {type(factory).__name__}"
        )
    registered[prefix] = factory


def foreign_factory(path: str | os.PathLike[str]) -> ForeignFactory | None:
    """Return the `ForeignFactory` registered for a path, or `None`."""
    factory = registered_for(path)
    return None if isinstance(factory, StorageFactory) else factory


def is_local(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is local. A path ``prefix:name`` is local unless the prefix is registered."""
    scheme = scheme_of(path)
    if scheme in ("", "file"):
        return registered_for(path) is None
    return registered_for(path) is None and not os.fspath(path)[len(scheme) :].startswith("://")


def schemes() -> list[str]:
    """List the supported URL schemes in sorted order: ``["file", "memory", "s3", ...]``.

    The list has the schemes of the built-in backends and of the installed plugins, and the prefixes registered with
    `register_writer_factory`. Plugins that cannot be used are omitted; `asyncrec doctor` explains why.

    The first call imports the plugins, which takes some milliseconds. Make it in a thread if an event loop is running.
    """
    _backends.load()
    return sorted({*(scheme for scheme in _backends.by_scheme if scheme), *registered})


@asynccontextmanager
async def open_storage(url: str | os.PathLike[str], **options: Any) -> AsyncIterator[Storage]:
    """Open the storage at a URL or a folder, for use within the context.

    Args:
        options: options for the backend, which its documentation lists. They are plain values that can be passed to
            other processes.

    Raises:
        UnknownSchemeError, AmbiguousSchemeError, UnsupportedBackendError: no single backend can serve the URL; the
            message suggests a remedy.
        TypeError: the backend has no such option.
        ValueError: the path is invalid.
    """
    async with await _opening(os.fspath(url), options, path=url) as storage:
        yield storage


@asynccontextmanager
async def located(
    path: str | os.PathLike[str], *, storage: Storage | None = None, storage_options: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Storage, str]]:
    """Open the storage that contains ``path``, and yield the storage and the object's key.

    If ``storage`` is passed, the path is a key in that storage, which is not closed. Otherwise, the path's root (the
    folder of a local path, the bucket of a URL) is opened with ``storage_options``. The key is ``""`` if the path is
    only a root.

    Raises: as `open_storage`; TypeError if both ``storage`` and ``storage_options`` are passed.
    """
    if storage is not None:
        if storage_options is not None:
            raise ArgumentTypeError(
                "storage and storage_options cannot be combined, because an open storage already has its options"
            )
        yield storage, os.fspath(path)
        return
    factory = registered_for(path)
    if factory is not None and not (isinstance(factory, StorageFactory) and "://" in os.fspath(path)):
        prefix, rest = os.fspath(path).split(":", 1)
        key = rest.lstrip("/")
        root = f"{prefix}:{rest[: len(rest) - len(key)]}"
    else:
        root, key = split_path(path)
    async with await _opening(root, dict(storage_options or {}), path=path) as opened:
        yield opened, key


@asynccontextmanager
async def located_folder(
    path: str | os.PathLike[str], *, storage: Storage | None = None, storage_options: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Storage, str]]:
    """Open the storage that contains the folder ``path``, and yield the storage and the prefix of the folder's keys.

    The prefix is ``""``, or ends with a slash.

    For the arguments and errors, see `located`.
    """
    # Locate a file in the folder, so that a local folder itself becomes the storage's root.
    async with located(join(os.fspath(path), "_"), storage=storage, storage_options=storage_options) as (opened, key):
        yield opened, key[:-1]


def registered_for(path: str | os.PathLike[str]) -> StorageFactory | ForeignFactory | None:
    """Return the factory that `register_writer_factory` registered for the path's prefix, or `None`."""
    if not isinstance(path, str):
        return None
    prefix, colon, _ = path.partition(":")
    return registered.get(prefix) if colon else None


async def _opening(
    root: str, options: dict[str, Any], *, path: str | os.PathLike[str]
) -> AbstractAsyncContextManager[Storage]:
    """Return the context that opens the storage at ``root``.

    ``path`` is the path as the user passed it. It appears in messages, and shows whether ``root`` comes from a path or
    a URL.
    """
    factory = registered_for(path)
    if factory is not None and not isinstance(factory, StorageFactory):
        if options:
            raise ArgumentTypeError(
                f"{redact(root)}: the registered factory takes no options, but these were passed: {', '.join(options)}"
            )
        return ForeignStorage(root, factory)
    if factory is None:
        factory, root = await _find(_backends, root, scheme_of(path), path)
    backend = anyio.get_cancelled_exc_class().__module__.partition(".")[0]
    if backend not in factory.backends:
        raise UnsupportedBackendError(_unsupported(factory, backend, redact(os.fspath(path))))
    try:
        return factory.open(root, **options)
    except TypeError as error:
        # A factory that declares its options as parameters raises TypeError for an unknown option.
        if _takes(factory.open, root, options):
            raise
        _, unexpected, option = str(error).partition(" got an unexpected keyword argument ")
        raise ArgumentTypeError(
            f"{redact(root)}: " + (f"this storage has no option {option}" if unexpected else str(error))
        ) from error


def _takes(function: Callable[..., Any], root: str, options: Mapping[str, Any]) -> bool:
    """Return whether the function can be called with these arguments."""
    try:
        inspect.signature(function).bind(root, **options)
    except TypeError:
        return False
    return True


async def factory_among(backends: Backends, url: str) -> StorageFactory:
    """Return the backend that serves a URL, ignoring registered factories.

    Raises:
        UnknownSchemeError, AmbiguousSchemeError: as `open_storage`.
    """
    factory, _ = await _find(backends, url, scheme_of(url), url)
    return factory


async def _find(backends: Backends, root: str, scheme: str, path: str | os.PathLike[str]) -> tuple[StorageFactory, str]:
    if scheme not in backends.built_in and not backends.loaded:
        # This reads the metadata of all installed distributions and imports the plugins, which takes tens of
        # milliseconds.
        await in_thread(backends.load)
    shown = redact(os.fspath(path))
    factories = backends.by_scheme.get(scheme, [])
    is_url = os.fspath(path)[len(scheme) :].startswith("://") or scheme == "file"
    if scheme and not is_url:
        if factories:
            raise ArgumentValueError(
                f"{shown}: write {scheme}:// for the backend {factories[0].name!r}, or ./{shown} for a local file"
            )
        factories = backends.by_scheme[""]  # the path is the name of a local file
    if scheme_of(root) and not is_url:
        root = f"./{root}"  # the backend receives only the root, and must not interpret it as a URL
    if not factories:
        base, _, driver = scheme.rpartition("+")
        factories = [factory for factory in backends.by_scheme.get(base, []) if factory.name == driver]
        if factories:
            root = base + root[len(scheme) :]
    if not factories:
        raise _unknown(backends, scheme, shown)
    if len(factories) > 1:
        names = [factory.name for factory in factories]
        raise AmbiguousSchemeError(
            f"{shown}: {len(names)} installed backends serve {scheme!r}: {', '.join(names)}. Name one in the URL, as "
            f"in {scheme}+{names[0]}://, or disable one with {DISABLE}"
        )
    return factories[0], root


def _unknown(backends: Backends, scheme: str, shown: str) -> UnknownSchemeError:
    package = _PACKAGES.get(scheme)
    if package:
        remedy = f"pip install {package}"
    elif package is None:
        remedy = "install the plugin that provides it"
    else:
        remedy = "check the spelling; no plugin for this scheme is known"
    message = f"{shown}: no backend serves {scheme!r}: {remedy}. The schemes are: {', '.join(backends.schemes)}"
    if backends.plugins.disabled:
        message += f". These plugins are disabled by {DISABLE}: {', '.join(backends.plugins.disabled)}"
    for name, broken in backends.plugins.broken.items():
        message += f". The plugin {name!r} could not be loaded: {type(broken).__name__}: {broken}"
    error = UnknownSchemeError(message)
    if not package:
        error.with_remedy("to add a backend of your own, use register_writer_factory", command="")
    # A broken plugin with the same name as the scheme most likely provides it. Otherwise, chain the error of the first
    # broken plugin.
    error.__cause__ = backends.plugins.broken.get(scheme) or next(iter(backends.plugins.broken.values()), None)
    return error


def _unsupported(factory: StorageFactory, backend: str, shown: str) -> str:
    others = [
        f"{scheme}://"
        for scheme, factories in _backends.by_scheme.items()
        for each in factories
        if scheme and backend in each.backends and any(scheme == own.partition("+")[0] for own in factory.schemes)
    ]
    loops = " or ".join(sorted(factory.backends))
    message = f"{shown}: the backend {factory.name!r} runs on {loops}, not on {backend}: run the program on {loops}"
    return message + "".join(f", or use {other}" for other in others)
