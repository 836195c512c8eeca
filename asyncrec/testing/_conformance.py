"""`StorageConformance`: the pytest cases that every `Storage` must pass, built in or not, on both event loops.

In a plugin's tests::

    class TestMyStorage(StorageConformance):
        def open_storage(self): ...             # a context manager that yields an open, empty Storage

        # Access the objects without the storage under test, so that a bug cannot hide itself.
        async def raw_put(self, storage, key, data): ...
        async def raw_get(self, storage, key): ...          # None if the object does not exist
        async def raw_list(self, storage): ...              # the keys of all visible objects, in any order
        async def raw_unfinished(self, storage): ...        # unfinished objects: partial files, uploads

and an ``anyio_backend`` fixture with the event loops that the plugin supports. Hooks may use attributes that fixtures
have set on ``self``. Use the smallest chunk size that the storage allows, because each case writes a few chunks.

Replace a case that the store cannot pass with a case that shows the store's actual behaviour, and state the reason::

    @replaces_case("the store has no conditional write")
    async def test_exclusive_creation(self): ...

Seven properties of a store are declared rather than shown by replacing a case. `exclusive_parts` and
`cancellable_requests` are attributes. A plugin with its own test server implements the hooks `losing_an_answer`,
`slowed`, `answered_by_another` and `answered_by_static_page`. The hook `by_url` returns the URL with which programs
open the storage. The cases that need the URL look for the plugin among the installed plugins, and write and read
records at that URL. A case whose hook is not implemented is skipped, and pytest shows the reason.

The cases for journals run if the storage implements `asyncrec.storage.LocalFiles`. The cases for writers that flush to
the storage run if the storage's `flush_level` is ``"buffered"``.

A case that takes longer than `case_seconds` (120) of real time is cancelled and fails.

An override without `replaces_case`, or an override of a case that does not exist, raises `TypeError` when the class is
defined.
"""

from __future__ import annotations

from asyncrec.testing._kit import replaces_case
from asyncrec.testing._storage.exclusive import ExclusiveCases
from asyncrec.testing._storage.flushing import FlushCases, JournalCases
from asyncrec.testing._storage.keys import KeyCases
from asyncrec.testing._storage.objects import ObjectCases, WritingCases
from asyncrec.testing._storage.reading import ReadingCases
from asyncrec.testing._storage.strangers import StrangerCases
from asyncrec.testing._storage.urls import UrlCases
from asyncrec.testing._storage.waiting import CancellingCases, WaitingCases

__all__ = ["StorageConformance", "replaces_case"]


class StorageConformance(
    WritingCases,
    ExclusiveCases,
    KeyCases,
    ReadingCases,
    ObjectCases,
    WaitingCases,
    CancellingCases,
    StrangerCases,
    UrlCases,
    JournalCases,
    FlushCases,
):
    """The cases that every storage must pass. Subclasses implement `open_storage` and the ``raw_`` hooks."""
