"""Records are summarized by feature in bounded memory, and records that are not Examples are counted separately."""

from __future__ import annotations

import numpy as np
import pytest
from asyncrec_report import profile as profile_module
from asyncrec_report.profile import Feature, Profile
from hypothesis import given
from hypothesis import strategies as st

import asyncrec
from asyncrec import FixedLen, Schema
from asyncrec.example import Tensor, decode_columns

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (4).to_bytes(4, "big") * 2 + b"..."


def profile_of(*records: bytes, schema: Schema | None = None, class_feature: str | None = None) -> Profile:
    profile = Profile(schema, class_feature=class_feature)
    for half in (records[: len(records) // 2], records[len(records) // 2 :]):
        profile.add(half, columns=decode_columns(half))
    return profile


def examples(*rows: dict[str, object]) -> list[bytes]:
    return [asyncrec.encode_example(row) for row in rows]


def test_profile_describes_kind_counts_and_values_of_features() -> None:
    rows = examples({"i": 5, "f": [0.5, 1.5], "s": "a"}, {"i": 7, "s": ["b", "c"]}, {"i": []})
    profile = profile_of(*rows)
    assert profile.records == profile.examples == 3
    assert profile.sizes.total == sum(map(len, rows))
    i, f, s = (profile.features[name] for name in "ifs")
    assert (i.dtype, i.records, i.kinds) == ("int64", 3, {"int64": 2, "nothing": 1})
    assert (i.numbers.values, i.counts.minimum, i.counts.maximum) == ({5: 1, 7: 1}, 0, 1)
    assert (f.dtype, f.records, f.numbers.count, f.numbers.mean) == ("float", 1, 2, 1.0)
    assert (s.dtype, s.records, s.strings.values) == ("bytes", 2, {b"a": 1, b"b": 1, b"c": 1})


def test_profile_counts_steps_of_feature_lists() -> None:
    record = asyncrec.encode_sequence_example({"id": 1}, {"frames": np.zeros((3, 2), np.float32)})
    frames = profile_of(record).features["frames"]
    assert (frames.is_list, frames.steps.maximum, frames.counts.maximum, frames.numbers.count) == (True, 3, 6, 6)


def test_profile_decodes_raw_arrays_by_schema() -> None:
    schema = Schema({"x": FixedLen((2,), "float64", raw=True), "t": Tensor("int32", raw=True)})
    x, t = np.array([1e300, 2]), np.arange(3, dtype=np.int32)
    record = asyncrec.encode_example({"x": x.tobytes(), "t": t.tobytes(), "t_shape": [3]})
    profile = profile_of(record, schema=schema)
    assert (profile.features["x"].dtype, profile.features["x"].numbers.maximum) == ("float64", 1e300)
    assert profile.features["t"].numbers.values == {0: 1, 1: 1, 2: 1}
    assert profile.features["x"].counts.maximum == 2


def test_profile_counts_records_other_than_examples() -> None:
    profile = profile_of(b'{"a": 1}', b"\xff" * 9, b"", *examples({"a": 1}))
    assert (profile.records, profile.others, profile.examples) == (4, 3, 1)
    assert profile.other_kinds == {"JSON": 1, "binary": 1, "empty": 1}
    assert profile.other_examples[0] == (0, "JSON", '{"a": 1}', True, 8)


def test_profile_reports_both_kinds_of_mixed_feature() -> None:
    feature = profile_of(*examples({"a": 1}, {"a": 0.5}, {"a": 2})).features["a"]
    assert feature.kinds == {"int64": 2, "float": 1}
    assert feature.dtype == "int64 or float"


def test_profile_summarises_first_features_and_counts_rest() -> None:
    profile = profile_of(*examples({f"f{i:04}": i for i in range(1500)}, {"another": 1}))
    assert len(profile.features) == 200
    assert profile.more_features == 1301


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"label": i % 3} for i in range(12)], "label"),
        ([{"info/Category": "ab"[i % 2]} for i in range(12)], "info/Category"),
        ([{"label": i} for i in range(12)], None),
        ([{"label": [1, 2]}, {"label": [2, 1]}], None),
        ([{"label": 1}] * 5, None),
        ([{"label": 0.5}, {"label": 1.5}] * 3, None),
        ([{"x": i % 3} for i in range(12)], None),
    ],
)
def test_profile_finds_class_feature_by_name_and_values(rows: list[dict[str, object]], expected: str | None) -> None:
    found = profile_of(*examples(*rows)).classes()
    assert (found and found.name) == expected


def test_profile_uses_given_class_feature() -> None:
    profile = profile_of(*examples({"label": 1, "x": 5}, {"label": 2, "x": 5}), class_feature="x")
    assert profile.classes() is profile.features["x"]


def test_profile_keeps_images_by_class_and_counts_large() -> None:
    rows = [{"image": PNG + bytes([i]), "label": i % 3} for i in range(100)]
    large = {"image": PNG + bytes(1 << 20), "label": 9}
    strings = profile_of(*examples(*rows, large)).features["image"].strings
    assert len(strings.pictures) == 24
    assert {picture.label for picture in strings.pictures} == {"0", "1", "2"}
    assert all(picture.data[-1] == picture.record for picture in strings.pictures)
    assert strings.too_large == 1
    assert max(picture.record for picture in strings.pictures) > 50, "drawn from all, not the first"


def test_profile_bounds_kept_images_across_features() -> None:
    profile = profile_of(*examples(*({f"image {n}": PNG + bytes(200_000) for n in range(8)} for _ in range(30))))
    kept = [picture for feature in profile.features.values() for picture in feature.strings.pictures]
    assert 15 << 20 < sum(len(picture.data) for picture in kept) <= 16 << 20
    assert sum(feature.strings.too_large for feature in profile.features.values()) >= 8 * 24 - len(kept)


def test_image_with_too_many_pixels_is_not_kept() -> None:
    bomb = PNG[:16] + (60_000).to_bytes(4, "big") * 2
    strings = profile_of(*examples({"image": bomb})).features["image"].strings
    assert (strings.pictures, strings.too_large) == ([], 1)


def test_profile_stops_counting_long_or_numerous_texts() -> None:
    profile = profile_of(*examples(*({"many": f"{i}", "long": "x" * 500} for i in range(5000))))
    assert profile.features["many"].strings.values is None
    assert profile.features["long"].strings.values is None
    assert [length for _, _, length in profile.features["long"].strings.examples] == [500]


def test_profile_keeps_only_head_of_large_value() -> None:
    strings = profile_of(*examples({"body": bytes(5 << 20)})).features["body"].strings
    assert [(len(head), length) for _, head, length in strings.examples] == [(4096, 5 << 20)]
    assert strings.lengths.maximum == 5 << 20


@given(st.lists(st.binary(max_size=60) | st.builds(lambda a: asyncrec.encode_example({"a": a}), st.integers(0, 9))))
def test_profile_accepts_arbitrary_bytes(records: list[bytes]) -> None:
    profile = profile_of(*records)
    assert profile.records == len(records)
    assert 0 <= profile.others <= len(records)
    assert all(isinstance(feature, Feature) for feature in profile.features.values())


def test_class_feature_names_are_lower_case() -> None:
    assert [name.lower() for name in profile_module._CLASS_NAMES] == list(profile_module._CLASS_NAMES)
