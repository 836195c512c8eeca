"""What a data set has of a page: `conditions` for its next request, and `resolve`, which gives a revisit its body.

All versions of a page have its key. The newest is the one that was committed last. A revisit's body is that of a record
with the key it refers to; which one, its digest and its date say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, overload

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ArgumentTypeError, RecordKeyError
from asyncrec.example._schema import Schema
from asyncrec.pages._revisits import is_revisit, resolved, validators
from asyncrec.pages._schema import PAGE, page_key

Page: TypeAlias = dict[str, Any]

# A data set may have more features than these, or fewer.
_PAGE = Schema(PAGE.features, allow_extra=True)
# To decode so much takes about a millisecond.
_LARGE = 64 << 10
# Versions of a page that are in memory at once: a body, and revisits of it, as a rule.
_AT_ONCE = 8
# Pages that are looked for at once.
_TASKS = 16


class Conditions(dict[str, str]):
    """Headers of a request, and the stored page that they are about.

    Attributes:
        page: the newest version that is stored; `None` if there is none, or if it is a revisit whose body is gone.
    """

    def __init__(self, headers: Mapping[str, str], page: dict[str, Any] | None) -> None:
        super().__init__(headers)
        self.page = page


class _Keys(Protocol):
    async def find_all(self, key: str | bytes) -> list[int]: ...


class _Manifest(Protocol):
    @property
    def path(self) -> str: ...


class PageDataset(Protocol):
    """What is asked of a `Dataset`."""

    @property
    def keys(self) -> _Keys: ...

    @property
    def manifest(self) -> _Manifest: ...

    async def get_many(self, indices: list[int], /) -> list[bytes]: ...


async def conditions(dataset: PageDataset | None, url: str) -> Conditions:
    """Return the headers with which a request for a page asks whether it has changed: ``If-None-Match`` with the ETag
    that came with its newest version, and ``If-Modified-Since`` with its date.

    ::

        known = await pages.conditions(dataset, url)
        async with session.get(url, headers=known) as response:
            page = await pages.from_aiohttp(response, before=known.page)

    The attribute ``page`` of what is returned is that version, for ``before=``. There are no headers if the response
    had none of them, was not a 200, ended early, or belongs to another method than GET; and if the version is a revisit
    whose body is not in the data set, so that the next response has one.

    Args:
        dataset: an open `Dataset` whose records are pages with their `page_key`; `None` if there is none yet.
        url: the URL, or another key.

    Raises:
        TypeError: ``dataset`` is not a `Dataset`.
        Other errors: those of `Dataset.get_by_key`, or the newest version is not a page.
    """
    if dataset is None:
        return Conditions({}, None)
    numbers = await _check(dataset).keys.find_all(url)
    if not numbers:
        return Conditions({}, None)
    (page,) = await _read(dataset, numbers[-1:])
    if not is_revisit(page):
        return Conditions(validators(page), page)
    original = await _original(dataset, page)
    if original is None:
        return Conditions({}, None)
    return Conditions(validators(page) or validators(original), page)


@overload
async def resolve(dataset: PageDataset, page: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
async def resolve(dataset: PageDataset, page: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]: ...
async def resolve(
    dataset: PageDataset, page: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a page with its body: for a revisit the page that it stands for, with the body that it refers to, and for
    another page the page itself. For a list of pages, return a list.

    The page is what was crawled, as if it had been stored whole. For a 304, which says little, the features that
    describe the body, the status and the headers come from the original, and newer headers from the 304.

    Args:
        dataset: an open `Dataset` that has the body: the one that the page is of, or several as one, by a pattern.
        page: a page, or a list of pages, as `PAGE` decodes it. Bodies of a list are read several at once, and all are
            held in memory.

    Raises:
        KeyError: the body is not in the data set.
        TypeError: ``dataset`` is not a `Dataset`, or ``page`` is not a page.
    """
    _check(dataset)
    if not isinstance(page, Mapping):
        if isinstance(page, str | bytes | bytearray) or not isinstance(page, Sequence):
            raise ArgumentTypeError(
                f"a page must be a dict, not {type(page).__name__}; decode a record with PAGE.decode"
            )
        return await for_each(lambda each: _resolve(dataset, each), page, tasks=_TASKS)
    return await _resolve(dataset, page)


async def _resolve(dataset: PageDataset, page: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(page, Mapping):
        raise _no_page(page)
    if not is_revisit(page):
        return dict(page)
    original = await _original(dataset, page)
    if original is None:
        raise RecordKeyError(
            f"{dataset.manifest.path}: the page {page['url']} of {page.get('date')} has no body: it is a revisit of "
            f"{page.get('refers_to_url') or page['url']} of {page.get('refers_to_date') or 'an unknown date'}, which "
            "is not there"
        ).with_remedy("if another data set has that page, open both as one by a pattern, such as 'crawl/pages-*'")
    return resolved(page, original)


async def _original(dataset: PageDataset, revisit: Mapping[str, Any]) -> Page | None:
    """The page that has the body of a revisit; `None` if there is none."""
    url = revisit.get("refers_to_url") or revisit["url"]
    numbers = await dataset.keys.find_all(page_key({"url": url, "method": revisit.get("method", "GET")}))
    best: Page | None = None
    fallbacks: list[Page] = []
    for end in range(len(numbers), 0, -_AT_ONCE):  # most revisits are of the last version that had a body
        for page in reversed(await _read(dataset, numbers[max(0, end - _AT_ONCE) : end])):
            if is_revisit(page):
                continue
            same_date = page["date"] == revisit.get("refers_to_date", "")
            if page["record_id"] and page["record_id"] == revisit.get("refers_to"):
                return page
            if page["digest"] == revisit.get("digest"):
                if same_date:
                    return page
                best = page if best is None else best  # the same body, of another date
            elif same_date and page["record_id"]:
                # Another tool's web archive: its digest may be of the body as it was sent, compressed.
                fallbacks.append(page)
    return best or (fallbacks[0] if len(fallbacks) == 1 else None)


async def _read(dataset: PageDataset, numbers: list[int]) -> list[Page]:
    """These records as pages."""
    records = await dataset.get_many(numbers)

    def decode() -> list[Page]:
        return [_PAGE.decode(record) for record in records]

    return decode() if sum(map(len, records)) <= _LARGE else await in_thread(decode)


def _no_page(page: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"a page must be a dict, not {type(page).__name__}; decode a record with pages.PAGE.decode"
    )


def _check(dataset: PageDataset) -> PageDataset:
    if not callable(getattr(getattr(dataset, "keys", None), "find_all", None)):
        raise ArgumentTypeError(
            f"the data set must be one that asyncrec.open_dataset has opened, not {type(dataset).__name__}"
        )
    return dataset
