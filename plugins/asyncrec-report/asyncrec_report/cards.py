"""The card of a feature: its type, the distribution of its values, and examples. This module does no I/O."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from .charts import histogram, meter, ranked
from .html import Child, el
from .humans import count, number, share, size
from .humans import record as named
from .numbers import Numbers
from .profile import Feature, Profile
from .strings import Strings
from .texts import preview

_TOP = 8
# Up to this many different texts are listed by frequency, even if none of them is frequent.
_FEW = 50
_NAME = 80
# The limits of a long example, in characters and in lines, and the maximum size of a short example in bytes.
_PIECE = 320
_LINES = 7
_SHORT = 160


class ImageRoom:
    """The number of bytes left for images on the page: initially 4 MiB, so that the page is easy to send and open."""

    def __init__(self, left: int = 4 << 20) -> None:
        self.left = left

    def take(self, wanted: int) -> bool:
        if wanted > self.left:
            return False
        self.left -= wanted
        return True


def anchor(number: int) -> str:
    """Return the id of a feature's card. It does not contain the feature's name, which may be any text."""
    return f"feature-{number}"


def kind_of(feature: Feature) -> str:
    """Return the type of a feature as shown on the page, such as "int64", "float32", "str" or "JPEG"."""
    if feature.dtype != "bytes" or not feature.strings.count:
        return feature.dtype
    kind = feature.strings.kind
    return "bytes" if kind in ("empty", "binary") else kind


def feature_card(number: int, feature: Feature, profile: Profile, room: ImageRoom) -> Element:
    kind = kind_of(feature)
    family = "number" if feature.numbers.count else "text" if feature.strings.count else ""
    return el(
        "article",
        el(
            "header",
            el("h3", _short(feature.name), title=feature.name[:400]),
            el("span", kind, class_=f"chip {family}".strip()),
        ),
        el("p", _shape(feature, profile), class_="shape"),
        el("div", _warnings(feature, profile)),
        _missing(feature, profile),
        el("div", _body(feature, room), class_="body"),
        class_="card feature",
        id=anchor(number),
    )


def _short(name: str) -> str:
    if not name:
        return "(no name)"
    return name if len(name) <= _NAME else name[:_NAME] + "…"


def _shape(feature: Feature, profile: Profile) -> str:
    """Describe the number of values per record, and the schema's entry."""
    said = []
    counts = feature.counts
    if feature.is_list:
        steps = feature.steps
        said.append(f"a feature list of {_range(steps)} {'step' if steps.maximum == 1 else 'steps'}")
    if counts.minimum == counts.maximum == 1:
        said.append("one value per record")
    else:
        said.append(f"{_range(counts)} values per record")
    if feature.entry is not None:
        said.append(_entry(feature.entry))
    elif profile.schema is not None:
        readers = [name for name, entry in profile.schema.features.items() if feature.name in entry.stored(name)]
        said.append(f"part of {readers[0]} in the schema" if readers else "not in the schema")
    return " · ".join(said)


def _entry(entry: Any) -> str:
    """Describe a schema entry, as in ``schema: FixedLen (28, 28), uint8, raw``."""
    fields = entry.to_json()
    parts = [f"{name} {value!r:.60}" for name, value in fields.items() if name not in ("kind", "shape", "dtype", "raw")]
    shape = f" {tuple(fields['shape'])}" if fields.get("shape") else ""
    kind = [
        f"{fields['kind']}{shape}",
        *[str(fields["dtype"])] * ("dtype" in fields),
        *["raw"] * ("raw" in fields),
    ]
    return "schema: " + ", ".join(kind + parts)


def _range(counts: Numbers) -> str:
    if not counts.count:
        return "no"
    if counts.minimum == counts.maximum:
        return number(counts.maximum)
    return f"{number(counts.minimum)} to {number(counts.maximum)} (mean {number(counts.mean)})"


def _warnings(feature: Feature, profile: Profile) -> Iterator[Element]:
    kinds = [(kind, times) for kind, times in feature.kinds.most_common() if kind != "nothing"]
    if len(kinds) > 1:
        text = ", ".join(f"{kind} in {times:,}" for kind, times in kinds)
        yield el("p", f"More than one type: {text}.", class_="warning")
    if feature.declared_kind is not None and not feature.is_list:
        wrong = sum(times for kind, times in kinds if kind != feature.declared_kind)
        if wrong:
            text = f"{count(wrong, 'record')} not {feature.declared_kind}, as the schema says."
            yield el("p", text, class_="warning")
    if feature.numbers.nan or feature.numbers.infinite:
        odd = [f"{feature.numbers.nan:,} NaN"] * bool(feature.numbers.nan)
        odd += [f"{feature.numbers.infinite:,} infinite"] * bool(feature.numbers.infinite)
        part = share(feature.numbers.nan + feature.numbers.infinite, feature.numbers.count)
        yield el("p", f"{' and '.join(odd)} of {feature.numbers.count:,} values ({part}).", class_="warning")


def _missing(feature: Feature, profile: Profile) -> Element | None:
    lacking = profile.examples - feature.records
    if not lacking:
        return None
    text = f"missing in {count(lacking, 'record')} ({share(lacking, profile.examples)})"
    return el("div", meter(feature.records, profile.examples), el("span", text), class_="missing")


def _body(feature: Feature, room: ImageRoom) -> Iterator[Child]:
    numbers, strings = feature.numbers, feature.strings
    if numbers.count:
        yield _numbers(feature.name, numbers)
    if strings.count:
        yield _strings(feature.name, strings, room)
    if not numbers.count and not strings.count:
        yield el("p", "None of the records read has a value.", class_="note")


def _numbers(name: str, numbers: Numbers) -> Iterator[Child]:
    if numbers.finite and numbers.minimum == numbers.maximum:
        yield el("p", "Always ", el("strong", number(numbers.minimum)), ".", class_="always")
        return
    yield histogram(numbers.histogram(), f"the values of {name}"[:120])
    if not numbers.finite:
        return
    (median,) = numbers.quantiles(0.5)
    yield _facts(
        ("min", number(numbers.minimum)),
        ("median", number(median)),
        ("mean", number(numbers.mean)),
        ("max", number(numbers.maximum)),
        ("std", number(numbers.deviation)),
        ("zeros", share(numbers.zeros, numbers.count)) if numbers.zeros else None,
        ("different", f"{len(numbers.values):,}") if numbers.values is not None else None,
    )


def _strings(name: str, strings: Strings, room: ImageRoom) -> Iterator[Child]:
    kinds = strings.kinds.most_common(5)
    if strings.pictures or strings.too_large:
        yield _pictures(strings, room)
    if len(kinds) > 1:
        parts = ", ".join(f"{kind} {share(times, strings.count)}" for kind, times in kinds)
        yield el("p", parts, class_="note")
    lengths = strings.lengths
    values = strings.values
    if values is not None and _few(values, strings.count):
        if len(values) == 1:
            yield el("p", "Always ", el("strong", preview(next(iter(values)))[0]), ".", class_="always")
            return
        top = [(preview(value)[0], times) for value, times in values.most_common(_TOP)]
        yield ranked(top, strings.count)
        if len(values) > _TOP:
            yield el("p", f"and {count(len(values) - _TOP, 'other')}", class_="note")
        return
    if lengths.minimum != lengths.maximum:
        yield el("p", "Bytes of a value", class_="caption")
        yield histogram(lengths.histogram(), f"the lengths of {name}"[:120], size)
    (median,) = lengths.quantiles(0.5)
    yield _facts(
        ("shortest", size(lengths.minimum)),
        ("median", size(median)),
        ("longest", size(lengths.maximum)),
        ("different", f"{len(values):,}") if values is not None else None,
    )
    yield _examples(strings)


def _few(values: Counter[bytes], total: int) -> bool:
    """Return whether values repeat so often that their frequencies are more informative than examples."""
    most = max(values.values())
    return len(values) <= max(1, total // 2) and (len(values) <= _FEW or most * 100 >= total)


def _examples(strings: Strings) -> Iterator[Element]:
    """Yield the examples, in one list if all are short, or else in one box each."""
    found = [(record, *preview(head, _PIECE), len(head), length) for record, head, length in sorted(strings.examples)]
    if all(is_text and length <= _SHORT and "\n" not in text for _, text, is_text, _, length in found):
        rows = [el("li", el("code", text), el("span", named(at))) for at, text, *_ in found]
        if rows:
            yield el("ol", rows, class_="samples")
        return
    for record, text, is_text, cut_at, length in found:
        lines = text.split("\n")
        beginning = "\n".join(lines[:_LINES]) + ("\n…" if len(lines) > _LINES else "")
        cut = f" · {size(length)}" if length > cut_at or not is_text or beginning.endswith("…") else ""
        yield el(
            "figure",
            el("pre", beginning, class_="text" if is_text else "hex"),
            el("figcaption", f"{named(record)}{cut}"),
            class_="example",
        )


def _pictures(strings: Strings, room: ImageRoom) -> Iterator[Child]:
    figures = []
    left_out = strings.too_large
    for picture in sorted(strings.pictures, key=lambda each: each.record):
        if not room.take(len(picture.data)):
            left_out += 1
            continue
        source = f"data:image/{picture.kind};base64,{b64encode(picture.data).decode()}"
        text = f"{named(picture.record)}: {picture.width} × {picture.height} pixels, {size(len(picture.data))}"
        small = "pixels" if max(picture.width, picture.height) <= 64 else None
        image = el("img", src=source, alt=picture.label or text, title=text, loading="lazy", class_=small)
        figures.append(el("figure", image, el("figcaption", picture.label or f"{picture.width} × {picture.height}")))
    if figures:
        yield el("div", figures, class_="pictures")
    if left_out:
        yield el("p", f"{count(left_out, 'image')} too large to be shown here", class_="note")


def _facts(*pairs: tuple[str, str] | None) -> Element:
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in filter(None, pairs)], class_="facts")
