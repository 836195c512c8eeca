"""Hypothesis strategies for tests of frames and compressed streams, and a helper that cuts streams into pieces."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

LARGE = 200_000  # above all thresholds of the implementation

small_records = st.lists(st.binary(max_size=40), max_size=40)
# Sizes near the implementation's thresholds, without making Hypothesis draw all of these bytes.
sized_records = st.lists(
    st.builds(
        lambda size, seed: bytes([seed]) * size,
        st.sampled_from([0, 1, 3, 255, 256, 4095, 4096, 65535, 65536, 65537, 131071, 131072, LARGE]),
        st.integers(0, 255),
    ),
    max_size=24,
)


def cut(stream: bytes, sizes: Iterable[int]) -> Iterable[bytes]:
    at = 0
    for size in sizes:
        if at >= len(stream):
            return
        yield stream[at : at + size]
        at += size
    yield stream[at:]
