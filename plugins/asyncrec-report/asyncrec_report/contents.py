"""The sections of the page about records: sizes, classes, features, and other records. This module does no I/O."""

from __future__ import annotations

from collections import Counter
from typing import Any
from xml.etree.ElementTree import Element

from .cards import ImageRoom, anchor, feature_card, kind_of
from .charts import columns, histogram, ranked
from .findings import Findings
from .html import Child, el
from .humans import count, number, share, size
from .humans import record as named
from .texts import preview

# The maximum number of open cards, of classes with a bar, and of columns. Readers would not look at more individually.
_CARDS = 24
_CLASSES = 10
_COLUMNS = 96


def sizes_card(findings: Findings) -> Element | None:
    sizes = findings.profile.sizes
    if not sizes.count:
        return None
    median, high, highest = sizes.quantiles(0.5, 0.95, 0.99)
    facts = [
        ("smallest", sizes.minimum),
        ("median", median),
        ("95 %", high),
        ("99 %", highest),
        ("largest", sizes.maximum),
    ]
    body: list[Child] = []
    if sizes.minimum == sizes.maximum:
        body.append(el("p", "Each has ", el("strong", size(sizes.maximum)), ".", class_="always"))
    else:
        body.append(histogram(sizes.histogram(), "the sizes of records", size))
        pairs = [el("div", el("dt", name), el("dd", size(value))) for name, value in facts]
        body.append(el("dl", pairs, class_="facts"))
    return el("section", el("h2", "Size of a record"), body, class_="card")


def classes_card(findings: Findings) -> Element | None:
    feature = findings.profile.classes()
    if feature is None:
        return None
    profile = findings.profile
    counted: Counter[Any] | None = feature.numbers.values if feature.numbers.count else feature.strings.values
    if not counted:
        return None
    name_of = profile.class_name if feature.numbers.count else lambda value: preview(value, 80)[0]
    top = [(name_of(value), times) for value, times in counted.most_common(_CLASSES)]
    different, total = len(counted), counted.total()
    least, most = min(counted.values()), max(counted.values())
    where = " in the records read" if findings.sampled else ""
    text = f"{count(different, 'class', 'classes')}{where}, by the feature "
    uneven = (
        f". The largest is {number(round(most / least, 1))} times the smallest." if most > least else ", equally large."
    )
    return el(
        "section",
        el("h2", "Balance of classes"),
        el("p", text, el("code", feature.name[:80]), uneven, class_="quiet"),
        ranked(top, total),
        _all_classes([(name_of(value), times) for value, times in counted.most_common()])
        if different > len(top)
        else None,
        class_="card",
    )


def _all_classes(classes: list[tuple[str, int]]) -> Element:
    """Return a chart with a column for each class (or group of classes), from the largest to the smallest."""
    groups = -(-len(classes) // _COLUMNS)
    bars = []
    for first in range(0, len(classes), groups):
        part = classes[first : first + groups]
        mean = sum(times for _, times in part) / len(part)
        which = part[0][0] if len(part) == 1 else f"{part[0][0]} and {count(len(part) - 1, 'other')}, on average"
        bars.append((mean, f"{which}: {number(mean)}", ""))
    return el(
        "div",
        columns(bars, "Records of each class"),
        el("p", f"all {len(classes):,} classes, from the largest to the smallest", class_="note"),
        class_="plot low",
    )


def features_section(findings: Findings) -> Element | None:
    profile = findings.profile
    known = list(profile.schema.features) if profile.schema else []
    order = {name: place for place, name in enumerate(known)}
    found = sorted(profile.features.values(), key=lambda each: (order.get(each.name, len(order)), each.name))
    features = [feature for feature in found if not feature.is_empty]
    empty = [feature.name[:60] or "(no name)" for feature in found if feature.is_empty]
    unseen = [name for name in known if name not in profile.features]
    if not found and not unseen:
        return None
    room = ImageRoom()
    cards = [feature_card(place, feature, profile, room) for place, feature in enumerate(features)]
    index = [
        el("li", el("a", feature.name[:60] or "(no name)", href=f"#{anchor(place)}"), el("small", kind_of(feature)))
        for place, feature in enumerate(features[:_CARDS])
    ]
    return el(
        "section",
        el("h2", "Features"),
        el("nav", el("ul", index), class_="index", aria_label="Features") if len(features) > 6 else None,
        el("p", f"In the schema, but in none of the records read: {', '.join(unseen)}.", class_="warning")
        if unseen and profile.records
        else None,
        el("p", f"In the schema: {', '.join(unseen)}.", class_="quiet") if unseen and not profile.records else None,
        el("div", cards[:_CARDS], class_="cards"),
        el("details", el("summary", f"{len(cards) - _CARDS} more features"), el("div", cards[_CARDS:], class_="cards"))
        if len(cards) > _CARDS
        else None,
        el("p", f"Empty in every record read: {', '.join(empty)}.", class_="note") if empty else None,
        el("p", f"{profile.more_features:,} more features are not shown on this page.", class_="note")
        if profile.more_features
        else None,
    )


def other_records_section(findings: Findings) -> Element | None:
    profile = findings.profile
    if not profile.others:
        return None
    kinds = ", ".join(f"{kind} {share(times, profile.others)}" for kind, times in profile.other_kinds.most_common(6))
    every = profile.others == profile.records
    some = "1 record is not an Example" if profile.others == 1 else f"{profile.others:,} records are not Examples"
    text = "The records are not Examples" if every else some
    examples = [
        el(
            "figure",
            el("pre", piece, class_="text" if is_text else "hex"),
            el("figcaption", f"{named(record)} · {kind} · {size(length)}"),
            class_="example",
        )
        for record, kind, piece, is_text, length in profile.other_examples
    ]
    return el(
        "section",
        el("h2", "Records" if every else "Other records"),
        el("p", f"{text}: {kinds}.", class_="quiet"),
        el("div", examples, class_="examples"),
    )
