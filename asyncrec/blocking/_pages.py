"""Look up the stored versions of pages in a data set without async."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, overload

from asyncrec._sampling.parameters import public_type
from asyncrec.blocking._owner import as_call, owner_of
from asyncrec.blocking._sampling import Dataset
from asyncrec.errors import ArgumentTypeError
from asyncrec.pages import _stored
from asyncrec.pages._stored import Conditions

_no_dataset = as_call(_stored.conditions)


@wraps(_stored.conditions)
def conditions(dataset: Dataset | None, url: str) -> Conditions:
    if dataset is None:
        return _no_dataset(None, url)
    _check(dataset)
    owner = owner_of(dataset)
    return owner.call(_stored.conditions, owner.value, url)


@overload
def resolve(dataset: Dataset, page: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
def resolve(dataset: Dataset, page: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]: ...
@wraps(_stored.resolve)
def resolve(dataset: Dataset, page: Any) -> Any:
    _check(dataset)
    owner = owner_of(dataset)
    return owner.call(_stored.resolve, owner.value, page)


def _check(dataset: Dataset) -> None:
    if not isinstance(dataset, Dataset):
        raise ArgumentTypeError(
            f"the data set must be one from asyncrec.blocking.open_dataset, not {public_type(dataset)}"
        )
