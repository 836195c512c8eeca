"""Charts as inline SVG. Text is placed beside a chart rather than inside, so that the chart can stretch.

A bar has a tooltip with its value. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from .html import Child, el
from .humans import number, share
from .numbers import Histogram

# The minimum height of a bar, so that every value above 0 is visible.
_LEAST = 1.5
_STEP = 10.0
_GAP = 1.2
# Up to this many columns are not stretched to the full width. The style sheet has a class for each number.
_FEW = 7


def columns(bars: Iterable[tuple[float, str, str]], label: str) -> Element:
    """Return a chart of vertical bars. A bar is ``(height in any unit, tooltip, class)``."""
    given = list(bars)
    few = f" few{len(given)}" if len(given) <= _FEW else ""
    most = max((height for height, _, _ in given), default=0) or 1
    shapes: list[Child] = []
    for place, (value, says, kind) in enumerate(given):
        height = max(100 * value / most, _LEAST) if value > 0 else 0
        x = place * _STEP + _GAP / 2
        bar = el("rect", x=x, y=100 - height, width=_STEP - _GAP, height=height, class_=kind or None)
        # The whole column shows the tooltip, because the bar may be low.
        field = el("rect", x=place * _STEP, y=0, width=_STEP, height=100, class_="field")
        shapes.append(el("g", el("title", says), bar, field))
    return el(
        "svg",
        shapes,
        class_=f"columns{few}",
        viewBox=f"0 0 {max(len(given), 1) * _STEP:g} 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def histogram(found: Histogram, what: str, text_of: object = number) -> list[Element]:
    """Return a histogram with its axis. ``text_of`` converts a value to text."""
    text = text_of if callable(text_of) else number
    each = found.scale == "each"
    total = sum(one.count for one in found.bins) + found.below + found.above
    bars = []
    for one in found.bins:
        span = text(one.low) if each or one.low == one.high else f"{text(one.low)} to {text(one.high)}"
        bars.append((float(one.count), f"{span}: {one.count:,} ({share(one.count, total)})", ""))
    if not bars:
        return []
    low, high = found.bins[0].low, found.bins[-1].high
    if len(found.bins) <= _FEW:
        # Label each column. So few columns do not fill the width of the page.
        marks = [text(one.low) if each else f"{text(one.low)} to {text(one.high)}" for one in found.bins]
        kind = f"axis few{len(found.bins)}"
    else:
        start = found.bins[1].low if found.scale == "log" and low == 0 else low
        middle = (start * high) ** 0.5 if found.scale == "log" else (low + high) / 2
        marks, kind = [text(low), text(middle), text(high)], "axis"
    axis = el("div", [el("span", mark) for mark in marks], class_=kind)
    notes = []
    if found.scale == "log":
        notes.append("logarithmic scale")
    if found.below or found.above:
        notes.append(f"{share(found.below + found.above, total)} lie further out")
    plot = columns(bars, f"Histogram of {what}, {text(low)} to {text(high)}")
    return [el("div", plot, axis, el("p", "; ".join(notes), class_="note") if notes else None, class_="plot")]


def ranked(values: Sequence[tuple[str, int]], total: int, *, code: bool = False) -> Element:
    """Return a list of values by frequency, each with a bar, its count and its share of ``total``."""
    most = max((times for _, times in values), default=1)
    return el(
        "ol",
        [
            el(
                "li",
                el("span", text or "(empty)", class_="name code" if code else "name", title=text),
                el(
                    "svg",
                    el("rect", x=0, y=0, width=max(100 * times / most, 0.8), height=10, class_="bar"),
                    class_="bar",
                    viewBox="0 0 100 10",
                    preserveAspectRatio="none",
                    aria_hidden="true",
                ),
                el("span", times, class_="count"),
                el("span", share(times, total), class_="share"),
            )
            for text, times in values
        ],
        class_="ranked",
    )


def meter(part: float, whole: float) -> Element:
    """Return a bar that shows the proportion of a part to the whole."""
    width = 100 * part / whole if whole else 0
    return el(
        "svg",
        el("rect", x=0, y=0, width=100, height=10, class_="rest"),
        el("rect", x=0, y=0, width=width, height=10, class_="part"),
        class_="meter",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def area(points: Sequence[tuple[float, float]], label: str) -> Element:
    """Return a step chart of a growing quantity. The points are ``(position, value)`` in ascending order."""
    first, last = points[0][0], points[-1][0]
    most = max(value for _, value in points) or 1
    width = (last - first) or 1
    steps = ["M0 100"]
    for where, value in points:
        steps.append(f"H{100 * (where - first) / width:.2f} V{100 - 98 * value / most:.2f}")
    line = " ".join(steps)
    return el(
        "svg",
        el("path", d=f"{line} H100 V100 Z", class_="under"),
        el("path", d=line.replace("M0 100", f"M0 {100 - 98 * points[0][1] / most:.2f}", 1), class_="line"),
        class_="columns",
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
