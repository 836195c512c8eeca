"""`ExampleSink` checks and describes each example that a generator yields, and adds it to the shuffle.

Its methods are called in worker threads, one at a time; see `asyncrec._datasets.from_generator.source.Receiver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncrec._datasets.description import Description
from asyncrec._datasets.from_generator.examples import flatten, prepare, with_shapes
from asyncrec._datasets.from_generator.images import image_shapes
from asyncrec._datasets.from_generator.source import Example
from asyncrec._datasets.progress import Progress
from asyncrec._datasets.shuffling.shuffler import HashShuffler
from asyncrec._records.record_size import check_size
from asyncrec.errors import ArgumentTypeError


class ExampleSink:
    """The receiver of the examples of one split, in the order in which they are yielded.

    Args:
        sparse_features: the features whose shapes are stored beside them.
        flattens: whether features are prepared for an Example; otherwise, the serializer gets them unchanged.
        own_serializer: whether the serializer is the user's. The features are then read from the records.
        max_record_bytes: a longer record raises an error.

    Attributes:
        taken: how many examples were taken so far.
    """

    def __init__(
        self,
        shuffler: HashShuffler,
        description: Description,
        progress: Progress,
        *,
        sparse_features: tuple[str, ...],
        flattens: bool,
        own_serializer: bool,
        max_record_bytes: int,
    ) -> None:
        self.taken = 0
        self._shuffler = shuffler
        self._description = description
        self._progress = progress
        self._sparse = sparse_features
        self._flattens = flattens
        self._own_serializer = own_serializer
        self._max_record_bytes = max_record_bytes
        self._prepared = 0
        self._last: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        return self._shuffler.size

    def prepare(self, item: Example) -> Example:
        """Return the key and the prepared features; see `prepare`.

        Raises:
            TypeError: the item is not a pair of a key and a dict.
        """
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], Mapping):
            raise ArgumentTypeError(
                f"example {self._prepared} is {str(item)[:80]!r}, a {type(item).__name__}; the generator must yield "
                "(key, features) pairs, where features is a dict"
            )
        self._prepared += 1
        key, features = item
        self._last = features
        if self._sparse:
            features = with_shapes(features, self._sparse)
        return key, prepare(features) if self._flattens else features

    def take(self, example: Example, record: bytes) -> None:
        """Add a record.

        Raises:
            TypeError: the record is not bytes.
            ValueError: the record is too long.
            SchemaError, DuplicateKeyError: as for `Description` and `HashShuffler`.
        """
        key, features = example
        if not isinstance(record, bytes):
            if not isinstance(record, bytearray | memoryview):
                raise ArgumentTypeError(
                    f"example {self.taken}: the serializer returned a {type(record).__name__}, not bytes"
                )
            record = bytes(record)
        check_size(len(record), self._max_record_bytes, f"example {self.taken}")
        if self._own_serializer:
            self._description.see_record(record, flatten(features), self.taken)
        else:
            self._description.see(features, self.taken)
        self._shuffler.add(key, record)
        self.taken += 1
        self._progress.advance()

    def finish(self) -> None:
        """Describe the images by those of the last example, as datum does. This reads the headers of their files."""
        self._description.see_images(image_shapes(flatten(self._last)))
