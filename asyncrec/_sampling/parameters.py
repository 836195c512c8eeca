"""Check the parameters of streams and samplers: numbers, seeds, and a worker's share.

Every error message names the parameter, the value that was passed, and the allowed values.
"""

from __future__ import annotations

import operator
import secrets
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

_WORKER = "pass (i, n) for worker number i of n, counted from 0"


def whole_number(value: Any, name: str, *, least: int, other: str = "") -> int:
    """Return ``value`` as an int. ``other`` describes other allowed values, such as ``"-1 to repeat forever"``.

    Raises:
        TypeError: the value is not a whole number.
        ValueError: the value is less than ``least``.
    """
    wanted = f"at least {least}" + (f", or {other}" if other else "")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}={value!r:.80}: must be an integer, {wanted}") from None
    if number < least:
        raise ArgumentValueError(f"{name}={number}: must be {wanted}")
    return number


def worker_of(worker: Any) -> tuple[int, int]:
    """Return a worker's number and the number of workers.

    Raises:
        TypeError: ``worker`` is not a pair of whole numbers.
        ValueError: the number of the worker is out of range.
    """
    try:
        number, workers = map(operator.index, worker)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"worker={worker!r:.80}: {_WORKER}") from None
    if not 0 <= number < workers:
        raise ArgumentValueError(f"worker={(number, workers)}: {_WORKER}")
    return number, workers


def check_seed(seed: Any, *, workers: int = 1) -> int | None:
    """Return the seed as a plain int, or `None` if the caller must choose a seed.

    Raises:
        TypeError: the seed is neither an integer nor `None`.
        ValueError: the seed is `None`, but there are several workers, which would choose different seeds.
    """
    if seed is None:
        if workers > 1:
            raise ArgumentValueError(
                "seed=None: each worker would choose its own order; pass the same integer to all workers"
            )
        return None
    try:
        return operator.index(seed)
    except TypeError:
        raise ArgumentTypeError(f"seed={seed!r:.80}: must be an integer, or None for a random one") from None


def check_same_seed(given: int | None, taken_with: int) -> None:
    """Check that ``given``, the seed that was passed, is `None` or equals the seed in the state.

    Raises:
        ValueError: a different seed was passed.
    """
    if given is not None and given != taken_with:
        raise ArgumentValueError(
            f"the state was taken with seed={taken_with}, but seed={given} was passed; pass the seed of the state"
        )


def new_seed() -> int:
    """Return a random 53-bit seed, so that every JSON parser preserves it exactly."""
    return secrets.randbits(53)


def check_function(function: Any, name: str, what: str) -> None:
    """Check that an argument is callable. ``what`` describes the function to pass, for the message.

    Raises:
        TypeError: the argument is not callable.
    """
    if not callable(function):
        raise ArgumentTypeError(f"{name}={function!r:.80}: must be {what}")


def public_type(value: object) -> str:
    """Return the name of a value's type with its public module, such as ``asyncrec.blocking.Dataset``."""
    kind: type = type(value)
    module = kind.__module__.partition("._")[0]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
