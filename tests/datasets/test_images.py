"""Image shapes are read from the first bytes of a file; `make interop` compares them with Pillow in every mode."""

from __future__ import annotations

import io
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._datasets.from_generator.examples import image_shape, image_shapes


def png(height: int, width: int, colour: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, colour, 0, 0, 0)


def jpeg(height: int, width: int, components: int, *, frame: int = 0xC0, before: bytes = b"") -> bytes:
    return b"\xff\xd8" + before + pack(">BBHBHHB", 0xFF, frame, 8 + 3 * components, 8, height, width, components)


@pytest.mark.parametrize(("colour", "axes"), [(0, []), (2, [3]), (3, []), (4, [2]), (6, [4])])
def test_png_shape_is_read_from_header(colour: int, axes: list[int]) -> None:
    assert image_shape(io.BytesIO(png(3, 5, colour))) == [3, 5, *axes]


@pytest.mark.parametrize(("components", "axes"), [(1, []), (3, [3]), (4, [4])])
def test_jpeg_shape_is_read_from_frame(components: int, axes: list[int]) -> None:
    assert image_shape(io.BytesIO(jpeg(3, 5, components))) == [3, 5, *axes]


def test_image_shape_skips_segments_before_frame() -> None:
    """The segments: EXIF data with a preview, a table whose marker resembles a frame's, padding, a bare marker."""
    exif = b"\xff\xe1" + pack(">H", 2 + 40_000) + jpeg(9, 9, 3) + bytes(40_000 - len(jpeg(9, 9, 3)))
    table = b"\xff\xc4" + pack(">H", 5) + b"abc"
    assert image_shape(io.BytesIO(jpeg(3, 5, 3, frame=0xC2, before=exif + table + b"\xff\xff\x01"))) == [3, 5, 3]


@given(st.binary(max_size=60), st.sampled_from([b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n"]), st.integers(0, 40))
def test_image_shape_accepts_arbitrary_bytes(data: bytes, start: bytes, cut: int) -> None:
    for content in (start + data, png(3, 5, 2)[:cut], jpeg(3, 5, 3)[:cut]):
        shape = image_shape(io.BytesIO(content))
        assert shape is None or len(shape) in (2, 3)


def test_image_shapes_inspects_path_objects_but_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(3, 5, 3))
    (tmp_path / "b.png").write_bytes(b"no image")
    (tmp_path / "c.txt").write_bytes(jpeg(3, 5, 3))
    names = {name: tmp_path / name for name in ("a.jpg", "b.png", "c.txt", "missing.png")}
    shapes = image_shapes({**names, "text": str(tmp_path / "a.jpg"), "n": 1, "nul": Path("\0.png")})
    assert shapes == {"a.jpg": [3, 5, 3], "c.txt": [3, 5, 3]}
