"""`deal` assigns examples to splits: by ratios, shuffled by a seed, and stratified. It does no I/O.

The same seed, number of rows and strata produce the same splits, on every machine and with every version of Python.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping, Sequence

from asyncrec.errors import ArgumentValueError

NAMES = ("train", "eval", "test")
# How far the sum of ratios may differ from 1: much more than the rounding of three floats, much less than a mistake.
_ROUNDING = 1e-6


def weights_of(ratios: float | Sequence[float]) -> dict[str, float]:
    """Return the splits and their shares. One or two ratios are for train and eval, three for train, eval and test.

    If one number is passed, it is the share of train, and eval gets the rest. Of three ratios, that of eval or test may
    be 0, and that split is not made.

    Raises:
        ValueError: another ratio is not greater than 0, or the sum is not 1, apart from rounding.
    """
    given = [ratios, 1 - ratios] if isinstance(ratios, int | float) else list(ratios)
    made = {name: ratio for name, ratio in zip(NAMES, given, strict=False) if ratio != 0 or len(given) == 2}
    if len(given) not in (2, 3) or "train" not in made or not all(0 < ratio < 1 for ratio in made.values()):
        raise ArgumentValueError(
            f"ratios={ratios!r}: pass one ratio between 0 and 1 (the share of train; eval gets the rest), or two or "
            "three ratios; each is greater than 0; of three, that of eval or of test may be 0, and this split is not "
            "made"
        )
    if not math.isclose(math.fsum(given), 1, abs_tol=_ROUNDING):
        raise ArgumentValueError(f"ratios={ratios!r} sum to {math.fsum(given):g}; they must sum to 1")
    return made


def deal(strata: Sequence[Hashable], weights: Mapping[str, float], *, seed: int) -> dict[str, list[int]]:
    """Return the rows of each split, in shuffled order. Every row is in one split; ``strata[i]`` is its stratum.

    The rows of one stratum are dealt before those of the next, each row to the split that is furthest below its share.
    So each split has its share of every stratum and of all rows, to within two rows, however small the strata are.
    """
    order = list(range(len(strata)))
    random.Random(seed).shuffle(order)
    ranks = {stratum: rank for rank, stratum in enumerate(dict.fromkeys(strata))}
    names = list(weights)
    shares = list(weights.values())
    counts = [0] * len(names)
    split_of = [0] * len(order)
    for dealt, row in enumerate(sorted(order, key=lambda row: ranks[strata[row]]), 1):
        lacks = [share * dealt - count for share, count in zip(shares, counts, strict=True)]
        split = lacks.index(max(lacks))
        counts[split] += 1
        split_of[row] = split
    splits: dict[str, list[int]] = {name: [] for name in names}
    for row in order:
        splits[names[split_of[row]]].append(row)
    return splits
