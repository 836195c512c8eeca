"""The garbage collector does not look through everything while a store's client is imported and made.

A client's library and its models are 40,000 to 60,000 objects, so many beside those of a small program that the
collector would do so once or twice meanwhile: 25 to 60 ms in which no thread runs but the one that happened to be
importing, the event loop's neither.
"""

from __future__ import annotations

import gc

__all__ = ["put_off_full_collection"]


def put_off_full_collection() -> None:
    """Have the garbage collector look through everything no sooner than some 80,000 objects from now.

    Not for what happens often, or it would never. What is young counts as old at once; it is looked through with the
    rest. A program that has frozen objects, or turned the collector off, is left alone.
    """
    if gc.isenabled() and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
