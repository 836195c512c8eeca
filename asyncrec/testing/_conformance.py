"""`StorageConformance` has the cases that every `Storage` passes, built in or not. For pytest; both event loops.

In a plugin's tests::

    class TestMyStorage(StorageConformance):
        def open_storage(self): ...             # a context manager that yields an open, empty Storage

        # Bypass the storage under test, straight to what holds the objects: a bug must not hide itself.
        async def raw_put(self, storage, key, data): ...
        async def raw_get(self, storage, key): ...          # None if nothing is
        async def raw_list(self, storage): ...              # the keys of all visible objects, in any order
        async def raw_unfinished(self, storage): ...        # what was begun and not ended: partial files, uploads

and an ``anyio_backend`` fixture with the loops that the plugin claims. Hooks may use what fixtures have put on
``self``. Give the storage the smallest chunk it allows: the cases write a few chunks each.

A case that the store cannot pass is replaced by one that shows what it does instead, with the reason::

    @replaces_case("the store has no conditional write")
    async def test_exclusive_creation(self): ...

Six things are declared instead: `exclusive_parts` and `cancellable_requests`; `losing_an_answer`, `slowed` and
`answered_by_another`, which a plugin that has a test server of its own fills in; and `by_url`, which returns the URL by
which programs reach the storage: the plugin is then looked for among what is installed, and records are written and
read by that URL. A case whose hook is not filled in is skipped, with the reason.

The cases of journals are tried if the storage offers `asyncrec.storage.LocalFiles`; those of a writer that
flushes to the storage, if its `flush_level` is ``"buffered"``.

A case may take `case_seconds` (120) of real time; then it is cancelled, and fails.

An override without `replaces_case`, or one of a case that does not exist, is a `TypeError` when the class is made.
"""

from __future__ import annotations

from asyncrec.testing._kit import replaces_case
from asyncrec.testing._storage.exclusive import ExclusiveCases
from asyncrec.testing._storage.flushing import FlushCases
from asyncrec.testing._storage.journals import JournalCases
from asyncrec.testing._storage.keys import KeyCases
from asyncrec.testing._storage.objects import ObjectCases
from asyncrec.testing._storage.reading import ReadingCases
from asyncrec.testing._storage.strangers import StrangerCases
from asyncrec.testing._storage.urls import UrlCases
from asyncrec.testing._storage.waiting import CancellingCases, WaitingCases
from asyncrec.testing._storage.writing import WritingCases

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
    """The cases that every store passes. Derive from it, and fill in `open_storage` and the ``raw_`` hooks."""
