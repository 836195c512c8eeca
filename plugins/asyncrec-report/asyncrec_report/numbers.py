"""`Numbers` summarises the range and distribution of millions of numbers in bounded memory. It does no I/O.

Counts, extremes, mean and deviation cover all numbers. Histograms and quantiles are computed from an even sample.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]

# The size of the sample, which takes at most 256 KiB. Quantiles are accurate to half a percent.
_KEPT = 1 << 14
# The maximum number of different integers to count individually. A label has fewer values, and an identifier has more.
_DISTINCT = 1000
_BINS = 40


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of ``count`` numbers from ``low`` up to ``high`` (which is included if it equals ``low``)."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bins in ascending order.

    Attributes:
        scale: ``"log"`` if bins grow by a constant factor, ``"each"`` if each bin is a single integer.
        below, above: the number of outliers omitted at each end, because they would compress the other bins.
    """

    bins: tuple[Bin, ...]
    scale: Literal["linear", "log", "each"]
    below: int = 0
    above: int = 0

    @property
    def most(self) -> int:
        return max((each.count for each in self.bins), default=0)


class Numbers:
    """A bounded summary of arrays of integers or floats.

    Attributes:
        count: the number of values, including NaN and infinities.
        nan, infinite, zeros: the numbers of NaNs, infinities and zeros.
        minimum, maximum: the smallest and the largest finite value; NaN if no value is finite.
        values: the frequency of each integer; `None` for floats, or for more than 1,000 different integers.
    """

    def __init__(self) -> None:
        self.count = self.nan = self.infinite = self.zeros = 0
        self.minimum = self.maximum = math.nan
        self.values: Counter[int] | None = Counter()
        self._sum = self._squares = self._shift = 0.0
        self._kept: list[Values] = []
        self._kept_count = 0
        self._share = 1.0
        self._random = np.random.default_rng(0)

    def add(self, array: Values) -> None:
        self.count += array.size
        if array.dtype.kind == "f":
            self.values = None
            is_finite = np.isfinite(array)
            finite = array if is_finite.all() else array[is_finite]
            nan = int(np.isnan(array).sum()) if finite.size < array.size else 0
            self.nan += nan
            self.infinite += array.size - finite.size - nan
        else:
            finite = array
        if not finite.size:
            return
        self.zeros += finite.size - int(np.count_nonzero(finite))
        low, high = float(finite.min()), float(finite.max())
        if math.isnan(self.minimum):
            self._shift = low  # keeps the sum of squares small even if all values are large
            self.minimum, self.maximum = low, high
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        as_float = finite.astype(np.float64)
        away = as_float - self._shift
        with np.errstate(over="ignore"):
            self._sum += float(away.sum())
            self._squares += float((away * away).sum())
        if self.values is not None:
            different, times = _counted(finite)
            if len(different) <= _DISTINCT:
                self.values.update(dict(zip(different.tolist(), times.tolist(), strict=True)))
            if len(different) > _DISTINCT or len(self.values) > _DISTINCT:
                self.values = None
        self._keep(as_float)

    @property
    def finite(self) -> int:
        return self.count - self.nan - self.infinite

    @property
    def total(self) -> float:
        return self._sum + self._shift * self.finite

    @property
    def mean(self) -> float:
        return self._shift + self._sum / self.finite if self.finite else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        if not self.finite:
            return math.nan
        mean = self._sum / self.finite
        return math.sqrt(max(self._squares / self.finite - mean * mean, 0.0))

    def quantiles(self, *levels: float) -> list[float]:
        """Return quantiles of the finite values. Each is an actual value, or NaN if no value is finite."""
        sample = self._sample()
        if not sample.size:
            return [math.nan] * len(levels)
        return [float(value) for value in np.quantile(sample, levels, method="inverted_cdf")]

    def histogram(self, bins: int = _BINS) -> Histogram:
        """Return a histogram of the finite values, scaled up from the sample. A few integers have one bin each."""
        if not self.finite:
            return Histogram((), "linear")
        # Use the integers themselves, because floats cannot distinguish adjacent integers above 2**53.
        if self.values is not None and max(self.values) - min(self.values) < bins:
            whole = range(min(self.values), max(self.values) + 1)
            return Histogram(tuple(Bin(value, value, self.values[value]) for value in whole), "each")
        sample = self._sample()
        low, high = float(sample.min()), float(sample.max())
        if low == high:
            return Histogram((Bin(low, high, self.finite),), "linear")
        first, last = (float(value) for value in np.quantile(sample, (0.005, 0.995)))
        positive = sample[sample > 0]
        if low >= 0 and (ends := _spans(positive)):
            edges = np.geomspace(*ends, bins + 1)
            return self._binned(positive, edges, "log", zeros=sample.size - positive.size)
        if last > first and high - low > 8 * (last - first):
            low, high = max(low, first - (last - first) / 4), min(high, last + (last - first) / 4)
        if not (np.rint(sample) == sample).all():
            return self._binned(sample, np.linspace(low, high, bins + 1), "linear")
        low, high = math.floor(low), math.ceil(high)
        step = -(-(high - low + 1) // bins)
        return self._binned(sample, np.arange(low, high + step + 1, step, dtype=np.float64), "linear", last=high)

    def _binned(
        self,
        sample: Values,
        edges: Values,
        scale: Literal["linear", "log"],
        *,
        zeros: int = 0,
        last: float | None = None,
    ) -> Histogram:
        """Return the sample's histogram, scaled up. For integers, ``last`` is the maximum, and bounds are inclusive."""
        counts, _ = np.histogram(sample, edges)
        times = self.finite / (sample.size + zeros)
        below, above = int((sample < edges[0]).sum()), int((sample > edges[-1]).sum())
        scaled = [round(count * times) or int(count > 0) for count in counts.tolist()]
        lows, highs = edges[:-1].tolist(), edges[1:].tolist()
        if last is not None:
            highs = [min(high - 1, last) for high in highs]
        bins = [Bin(low, high, count) for low, high, count in zip(lows, highs, scaled, strict=True)]
        while not bins[-1].count and bins[-1].low > bins[-1].high:  # a bin after the last integer
            bins.pop()
        if zeros:
            bins.insert(0, Bin(0, 0, round(zeros * times)))
        return Histogram(tuple(bins), scale, round(below * times), round(above * times))

    def _keep(self, values: Values) -> None:
        if self._share < 1:
            values = values[self._random.random(values.size) < self._share]
        self._kept.append(values)
        self._kept_count += values.size
        while self._kept_count > 2 * _KEPT:
            sample = self._sample()
            sample = sample[self._random.random(sample.size) < 0.5]
            self._kept, self._kept_count = [sample], sample.size
            self._share /= 2

    def _sample(self) -> Values:
        if len(self._kept) != 1:
            self._kept = [np.concatenate(self._kept)] if self._kept else [np.empty(0)]
        return self._kept[0]


def _counted(integers: Values) -> tuple[Values, Values]:
    """Return the distinct integers in ascending order, and their frequencies."""
    low, high = int(integers.min()), int(integers.max())
    if high - low >= _DISTINCT:
        return np.unique(integers, return_counts=True)
    times = np.bincount(integers - low)  # avoids sorting
    different = np.flatnonzero(times)
    return different + low, times[different]


def _spans(positive: Values) -> tuple[float, float] | None:
    """Return the minimum and maximum if a linear scale would show only one bar, because of widely spread values."""
    if positive.size < 2:
        return None
    low, high = float(positive.min()), float(positive.max())
    middle, last = (float(value) for value in np.quantile(positive, (0.25, 0.995)))
    return (low, high) if high > 50 * low and last > 20 * middle else None
