"""Check the parameters of streams and samplers: numbers, seeds, a worker's share. Pure.

Every message names the parameter, the value passed, and the values allowed.
"""

from __future__ import annotations

import operator
import secrets
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

_WORKER = "pass (i, n) for worker number i of n, counted from 0"


def whole_number(value: Any, name: str, *, least: int, other: str = "") -> int:
    """Return the number. ``other`` is what else the parameter may be, for the message: ``"-1 for ever"``.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is less than ``least``.
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
    """Return the number of a worker, and how many there are.

    Raises:
        TypeError: it is not a pair of whole numbers.
        ValueError: there is no such worker.
    """
    try:
        number, workers = map(operator.index, worker)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"worker={worker!r:.80}: {_WORKER}") from None
    if not 0 <= number < workers:
        raise ArgumentValueError(f"worker={(number, workers)}: {_WORKER}")
    return number, workers


def check_seed(seed: Any, *, workers: int = 1) -> int | None:
    """Return the seed, a plain int, or `None` if one is to be chosen. A stream of several workers must not choose.

    Raises:
        TypeError: it is neither.
        ValueError: it is `None`, and each of the workers would choose another.
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
    """Refuse the seed of a state if another seed was passed.

    Raises:
        ValueError: another seed was passed.
    """
    if given is not None and given != taken_with:
        raise ArgumentValueError(
            f"the state was taken with seed={taken_with}, but seed={given} was passed; pass the seed of the state"
        )


def new_seed() -> int:
    """Return a random seed of 53 bits, which every JSON reader keeps exactly."""
    return secrets.randbits(53)


def check_function(function: Any, name: str, what: str) -> None:
    """Refuse what cannot be called: ``what`` says what has to be passed.

    Raises:
        TypeError: it is not a function.
    """
    if not callable(function):
        raise ArgumentTypeError(f"{name}={function!r:.80}: must be {what}")


def public_type(value: object) -> str:
    """Return the type of a value as users import it, with its module: ``asyncrec.blocking.Dataset``."""
    kind: type = type(value)
    module = kind.__module__.partition("._")[0]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
