"""Object stores, and the tools for writing a storage plugin. The names below are public.

    Storage, ByteSink, ByteSource, ObjectInfo, Buffer                                       the contract
    UnfinishedUploads, ExclusiveParts, LocalFiles     optional interfaces of a storage
    SinkState                                         the state machine of a sink, for authors of sinks
    StorageFactory                                    the type that a plugin's hook returns
    register_writer_factory                           registers a backend in one program, as in tensorboardX
    schemes                                           the schemes of the URLs that can be opened
    directory_check, make_valid_tf_name               two functions that tensorboardX also has
    retrying, RetryPolicy, Backoff, DEFAULT           the back-off that all backends share
    check_key, join, local_path, redact, scheme_of    keys and URLs
    PrefixedStorage, BridgedStorage, on_asyncio       a part of a storage; an asyncio-only client under trio
    MemoryStorage                                     objects in memory, for tests
    ReadOnlyStorage                                   a base class for storages that cannot write
    TaskScope, in_thread, sheltered, shielded         tasks and threads with an owner; protection from cancellation

Code shared by HTTP backends is in `asyncrec.storage.http`, whose names are not stable.

Names are imported on first use, so a plugin module that imports only `StorageFactory` loads nothing else.

_base             the interface of a backend: Storage, ByteSink, ByteSource; a storage that only reads
_sink_state       the states of a sink, as a table
_factory          the type that a plugin's hook returns
_url              splits and joins paths and keys
_backends         the built-in and installed backends; _foreign: simple objects that can only write
_registry         finds the backend of a path
_local            files on disks; _memory: objects in this process; _prefixed: a part of any storage
_retry            the back-off
_chunk_writer     gathers bytes into chunks; _resuming_source: continues after a fault, and reads ahead
_files            writes bytes of any format to a path
_listing          a part of a listing, by number or by pattern; _checksums: checksums of stored objects
http              the common code of backends over HTTP
_shelter          operations that a cancellation must not interrupt
_bridge           an asyncio-only client under trio; _other_loop: calls from one loop to another
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec._concurrency.deadline import shielded as shielded
    from asyncrec._concurrency.tasks import TaskScope as TaskScope
    from asyncrec._concurrency.tasks import in_thread as in_thread
    from asyncrec.storage._base import Buffer as Buffer
    from asyncrec.storage._base import ByteSink as ByteSink
    from asyncrec.storage._base import ByteSource as ByteSource
    from asyncrec.storage._base import ExclusiveParts as ExclusiveParts
    from asyncrec.storage._base import LocalFiles as LocalFiles
    from asyncrec.storage._base import ObjectInfo as ObjectInfo
    from asyncrec.storage._base import ReadOnlyStorage as ReadOnlyStorage
    from asyncrec.storage._base import Storage as Storage
    from asyncrec.storage._base import UnfinishedUploads as UnfinishedUploads
    from asyncrec.storage._bridge import BridgedStorage as BridgedStorage
    from asyncrec.storage._factory import StorageFactory as StorageFactory
    from asyncrec.storage._files import directory_check as directory_check
    from asyncrec.storage._files import make_valid_tf_name as make_valid_tf_name
    from asyncrec.storage._memory import MemoryStorage as MemoryStorage
    from asyncrec.storage._other_loop import on_asyncio as on_asyncio
    from asyncrec.storage._prefixed import PrefixedStorage as PrefixedStorage
    from asyncrec.storage._registry import register_writer_factory as register_writer_factory
    from asyncrec.storage._registry import schemes as schemes
    from asyncrec.storage._retry import DEFAULT as DEFAULT
    from asyncrec.storage._retry import Backoff as Backoff
    from asyncrec.storage._retry import RetryPolicy as RetryPolicy
    from asyncrec.storage._retry import retrying as retrying
    from asyncrec.storage._shelter import sheltered as sheltered
    from asyncrec.storage._sink_state import SinkState as SinkState
    from asyncrec.storage._url import check_key as check_key
    from asyncrec.storage._url import join as join
    from asyncrec.storage._url import local_path as local_path
    from asyncrec.storage._url import redact as redact
    from asyncrec.storage._url import scheme_of as scheme_of

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec._concurrency.deadline": "shielded",
        "asyncrec._concurrency.tasks": "TaskScope in_thread",
        "asyncrec.storage._base": (
            "Buffer ByteSink ByteSource ExclusiveParts LocalFiles ObjectInfo ReadOnlyStorage Storage UnfinishedUploads"
        ),
        "asyncrec.storage._bridge": "BridgedStorage",
        "asyncrec.storage._factory": "StorageFactory",
        "asyncrec.storage._files": "directory_check make_valid_tf_name",
        "asyncrec.storage._memory": "MemoryStorage",
        "asyncrec.storage._other_loop": "on_asyncio",
        "asyncrec.storage._prefixed": "PrefixedStorage",
        "asyncrec.storage._registry": "register_writer_factory schemes",
        "asyncrec.storage._retry": "Backoff DEFAULT RetryPolicy retrying",
        "asyncrec.storage._sink_state": "SinkState",
        "asyncrec.storage._shelter": "sheltered",
        "asyncrec.storage._url": "check_key join local_path redact scheme_of",
    },
)
