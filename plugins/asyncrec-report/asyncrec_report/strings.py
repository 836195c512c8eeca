"""`Strings` summarises the lengths, kinds and frequencies of millions of byte strings in bounded memory.

This module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .images import image_of
from .numbers import Numbers
from .texts import sniff_all

# The maximum number of different values to count individually, and the maximum size of each in bytes. The values of a
# feature take at most half a megabyte.
_DISTINCT = 4096
_LONG = 120
_EXAMPLES = 3
_IMAGES = frozenset(("PNG", "JPEG", "GIF", "WebP"))
_NO_EXAMPLES = _IMAGES | {"empty"}
# The maximum number of bytes kept of an example, enough to show it and to detect its kind.
_EXAMPLE_BYTES = 1 << 12
# The maximum number of images of a feature, and the maximum size of an image in bytes, so that the page opens quickly
# and can be sent by mail.
IMAGES = 24
_IMAGE_BYTES = 256 << 10
# The maximum number of pixels of an image. A photograph has 12 million. A browser needs at most 1.6 GB for 24 images.
_IMAGE_PIXELS = 1 << 24


# The record number of each value.
Numbered: TypeAlias = "Sequence[int] | npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Picture:
    """An image to show, with the number and label of its record."""

    kind: str
    width: int
    height: int
    data: bytes
    record: int
    label: str


@dataclass(slots=True)
class PictureRoom:
    """The number of bytes left for the images of all features: initially four times as many as a page shows."""

    left: int = 16 << 20


class Strings:
    """A bounded summary of the values of one feature.

    Attributes:
        lengths: the lengths of all values in bytes.
        kinds: the number of values of each kind, such as "text", "JSON", "PNG" or "binary".
        values: the frequency of each value; `None` after a long value, or more than 4,096 different values.
        examples: (record, beginning, length) of a few different values, drawn evenly from all values.
        pictures: a few images, drawn evenly from all images.
        too_large: the number of images that are too large to show, individually or together with others.
    """

    def __init__(self, room: PictureRoom | None = None) -> None:
        self._room = room or PictureRoom()
        self.lengths = Numbers()
        self.kinds: Counter[str] = Counter()
        self.values: Counter[bytes] | None = Counter()
        self.examples: list[tuple[int, bytes, int]] = []
        self.pictures: list[Picture] = []
        self.too_large = 0
        self._images = self._candidates = 0
        self._random, self._random_picture = np.random.default_rng(0), np.random.default_rng(0)

    def add(self, values: Sequence[bytes], records: Numbered, label_of: Callable[[int], str]) -> None:
        """Add values. ``records[i]`` is the record of ``values[i]``, and ``label_of(record)`` is its image's label."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.lengths.add(lengths)
        if self.values is not None:
            if lengths.max(initial=0) > _LONG:
                self.values = None
            else:
                self.values.update(values)
                if len(self.values) > _DISTINCT:
                    self.values = None
        kinds = sniff_all(values, lengths)
        if len(kinds) < len(values):
            self.kinds["text"] += len(values) - len(kinds)
        self.kinds.update(kinds.values())
        without = [place for place, kind in kinds.items() if kind in _NO_EXAMPLES]
        self._draw_examples(values, records, np.delete(np.arange(len(values)), without))
        for place in without:
            if kinds[place] in _IMAGES:
                self._picture(values[place], int(records[place]), label_of)

    @property
    def count(self) -> int:
        return self.lengths.count

    @property
    def kind(self) -> str:
        """The most frequent kind other than "empty", or "empty" if there is no other."""
        return next((kind for kind, _ in self.kinds.most_common() if kind != "empty"), "empty")

    def _draw_examples(self, values: Sequence[bytes], records: Numbered, places: npt.NDArray[np.int64]) -> None:
        """Keep some of the values at these indices, such that all values so far are equally likely to be kept."""
        begun = 0
        while begun < len(places) and len(self.examples) < _EXAMPLES:
            self._example(values, records, int(places[begun]), len(self.examples))
            begun += 1
        self._candidates += begun
        rest = len(places) - begun
        drawn = self._random.random(rest) * np.arange(self._candidates + 1, self._candidates + rest + 1)
        self._candidates += rest
        for after in np.flatnonzero(drawn < _EXAMPLES).tolist():
            self._example(values, records, int(places[begun + after]), int(drawn[after]))

    def _example(self, values: Sequence[bytes], records: Numbered, place: int, slot: int) -> None:
        value = values[place]
        head = value[:_EXAMPLE_BYTES]
        if all(head != other for _, other, _ in self.examples):
            self.examples[slot : slot + 1] = [(int(records[place]), head, len(value))]

    def _picture(self, value: bytes, record: int, label_of: Callable[[int], str]) -> None:
        image = image_of(value[: 1 << 16])
        assert image is not None, "sniff found an image"
        if len(value) > _IMAGE_BYTES or image.width * image.height > _IMAGE_PIXELS:
            self.too_large += 1
            return
        self._images += 1
        place = len(self.pictures) if len(self.pictures) < IMAGES else int(self._random_picture.integers(self._images))
        if place < IMAGES:
            before = len(self.pictures[place].data) if place < len(self.pictures) else 0
            if len(value) - before > self._room.left:
                self.too_large += 1
                return
            self._room.left -= len(value) - before
            picture = Picture(image.kind, image.width, image.height, value, record, label_of(record))
            self.pictures[place : place + 1] = [picture]
