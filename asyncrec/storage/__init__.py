"""Paths to bytes: stores, and what a storage plugin is written with. The names below are public.

    Storage, ByteSink, ByteSource, ObjectInfo, UnfinishedUploads, ExclusiveParts, Buffer    the contract
    StorageFactory, hookimpl                          how a plugin comes in
    retrying, RetryPolicy, Backoff, DEFAULT           the one back-off
    check_key, join, local_path, redact, scheme_of    keys and URLs
    PrefixedStorage, BridgedStorage, on_asyncio       a part of a storage; an asyncio-only client under trio
    TaskScope, in_thread                              tasks and threads with an owner

They are imported on first use; a plugin's module that takes `StorageFactory` and `hookimpl` alone loads no more.

base         what a backend implements: Storage, ByteSink, ByteSource
factory      what the hook of a plugin gives
url          paths and keys, taken apart and put together
backends     those that are there, ours and those of plugins; foreign: simple objects that only write
registry     from a path to its backend
local        files (local_disk, local_sink, local_source, local_walk); memory: this process; prefixed: a part of any
retry        the one back-off
chunks       bytes -> chunks; resuming: reading on after a fault, and ahead
files        any bytes under a path
bridge       an asyncio-only client under trio
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec.plugins.hookspecs import hookimpl as hookimpl
    from asyncrec.storage.base import Buffer as Buffer
    from asyncrec.storage.base import ByteSink as ByteSink
    from asyncrec.storage.base import ByteSource as ByteSource
    from asyncrec.storage.base import ExclusiveParts as ExclusiveParts
    from asyncrec.storage.base import ObjectInfo as ObjectInfo
    from asyncrec.storage.base import Storage as Storage
    from asyncrec.storage.base import UnfinishedUploads as UnfinishedUploads
    from asyncrec.storage.bridge import BridgedStorage as BridgedStorage
    from asyncrec.storage.bridge import on_asyncio as on_asyncio
    from asyncrec.storage.factory import StorageFactory as StorageFactory
    from asyncrec.storage.prefixed import PrefixedStorage as PrefixedStorage
    from asyncrec.storage.retry import DEFAULT as DEFAULT
    from asyncrec.storage.retry import Backoff as Backoff
    from asyncrec.storage.retry import RetryPolicy as RetryPolicy
    from asyncrec.storage.retry import retrying as retrying
    from asyncrec.storage.url import check_key as check_key
    from asyncrec.storage.url import join as join
    from asyncrec.storage.url import local_path as local_path
    from asyncrec.storage.url import redact as redact
    from asyncrec.storage.url import scheme_of as scheme_of
    from asyncrec.tasks import TaskScope as TaskScope
    from asyncrec.tasks import in_thread as in_thread

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.plugins.hookspecs": ("hookimpl",),
        "asyncrec.storage.base": (
            "Buffer",
            "ByteSink",
            "ByteSource",
            "ExclusiveParts",
            "ObjectInfo",
            "Storage",
            "UnfinishedUploads",
        ),
        "asyncrec.storage.bridge": ("BridgedStorage", "on_asyncio"),
        "asyncrec.storage.factory": ("StorageFactory",),
        "asyncrec.storage.prefixed": ("PrefixedStorage",),
        "asyncrec.storage.retry": ("DEFAULT", "Backoff", "RetryPolicy", "retrying"),
        "asyncrec.storage.url": ("check_key", "join", "local_path", "redact", "scheme_of"),
        "asyncrec.tasks": ("TaskScope", "in_thread"),
    },
)
