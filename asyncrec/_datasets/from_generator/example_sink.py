"""`ExampleSink` takes each example on its way from the generator into the shuffle: it checks, describes and stores it.

Called in worker threads, one at a time; see `asyncrec._datasets.from_generator.source.Receiver`.
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
    """The receiver of the examples of one split, each as it comes.

    Args:
        sparse_features: the features that get their shapes beside them.
        flattens: whether features are prepared for an Example; otherwise the serializer gets them as they are.
        own_serializer: whether it is the user's: then what records hold is read from them.
        max_record_bytes: a longer record is refused.

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
        """Return the prepared features. Raises TypeError unless it is a pair of a key and a dict; see `prepare`."""
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
        """Take a record. Raises TypeError if it is not bytes, ValueError if it is too long, and SchemaError,
        DuplicateKeyError."""
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
        """Finish: the shapes of images are those of the last example's, as in datum. Reads their headers."""
        self._description.see_images(image_shapes(flatten(self._last)))
