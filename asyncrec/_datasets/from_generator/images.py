"""Read the size of a PNG or JPEG, and the number of values of a pixel, from the first bytes of its file.

The shape is that of the NumPy array of an image that Pillow has opened: ``[height, width]`` for grey and for palettes,
otherwise with a third axis. All functions block.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from struct import Struct
from typing import Any, BinaryIO

_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER = Struct(">I4sIIBB")  # after the signature: chunk length, type, width, height, depth, colour type
_PNG_AXES: dict[int, list[int]] = {0: [], 2: [3], 3: [], 4: [2], 6: [4]}
_LENGTH = Struct(">H")
_FRAME = Struct(">BHHB")  # depth, height, width, components
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_MOST_SEGMENTS = 10_000


def image_shapes(features: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shape of each feature that is the path of an image, as in `_datasets.from_generator.examples`."""
    shapes = {}
    for name, value in features.items():
        if not isinstance(value, PathLike):
            continue
        try:
            with open(value, "rb") as file:
                shape = image_shape(file)
        except (OSError, ValueError):
            continue
        if shape is not None:
            shapes[name] = shape
    return shapes


def image_shape(file: BinaryIO) -> list[int] | None:
    """Return the shape of an image; `None` if it is neither a PNG nor a JPEG, or ends before its size."""
    start = file.read(len(_PNG))
    if start == _PNG:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        _, kind, width, height, _, colour = _HEADER.unpack(header)
        return [height, width, *_PNG_AXES[colour]] if kind == b"IHDR" and colour in _PNG_AXES else None
    return _jpeg_shape(file) if start[:2] == b"\xff\xd8" else None


def _jpeg_shape(file: BinaryIO) -> list[int] | None:
    file.seek(2)
    for _ in range(_MOST_SEGMENTS):
        marker = file.read(2)
        if len(marker) < 2 or marker[0] != 0xFF:
            return None
        if marker[1] == 0xFF:  # padding
            file.seek(-1, 1)
            continue
        if marker[1] in _NO_LENGTH:
            continue
        length = file.read(_LENGTH.size)
        if len(length) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack(length)
        if marker[1] in _FRAMES:
            frame = file.read(_FRAME.size)
            if len(frame) < _FRAME.size:
                return None
            _, height, width, components = _FRAME.unpack(frame)
            return [height, width] if components == 1 else [height, width, components]
        file.seek(max(size - _LENGTH.size, 0), 1)
    return None
