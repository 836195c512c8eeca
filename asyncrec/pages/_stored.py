"""Look up stored versions of a page: `conditions` for its next request, and `resolve` to find the body of a revisit.

All versions of a page have the same key. The newest version is the one that was committed last. The body of a revisit
is in a record with the key to which the revisit refers; if several records have this key, the digest and the date
identify the right one.
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

# A data set may have more or fewer features than PAGE.
_PAGE = Schema(PAGE.features, allow_extra=True)
# Decoding this many bytes takes about a millisecond.
_LARGE = 64 << 10
# The number of versions of a page to read at once. These are usually a page with a body and its revisits.
_AT_ONCE = 8
# The number of keys to look up concurrently.
_TASKS = 16


class Conditions(dict[str, str]):
    """Headers of a request, and the stored page to which they refer.

    Attributes:
        page: the newest version, or `None` if no version is stored or the newest is a revisit whose body is missing.
    """

    def __init__(self, headers: Mapping[str, str], page: dict[str, Any] | None) -> None:
        super().__init__(headers)
        self.page = page


class _Keys(Protocol):
    async def versions(self, key: str | bytes) -> Any: ...


class _Manifest(Protocol):
    @property
    def path(self) -> str: ...


class _Lookup(Protocol):
    def check_open(self) -> None: ...


class PageDataset(Protocol):
    """The part of `Dataset` that this module uses."""

    @property
    def keys(self) -> _Keys: ...

    @property
    def contents(self) -> _Keys: ...

    @property
    def lookup(self) -> _Lookup: ...

    @property
    def manifest(self) -> _Manifest: ...

    async def get_many(self, indices: list[int], /) -> list[bytes]: ...


async def conditions(dataset: PageDataset | None, url: str) -> Conditions:
    """Return the headers of a conditional request for a page that may have changed since its newest stored version.

    These are ``If-None-Match`` with the version's ETag, and ``If-Modified-Since`` with its Last-Modified date::

        known = await pages.conditions(dataset, url)
        async with session.get(url, headers=known) as response:
            page = await pages.from_aiohttp(response, before=known.page)

    The attribute ``page`` of the returned headers is this version, to be passed as ``before=``. The headers are empty
    if the stored response had neither header, was not a 200, ended early, or had a method other than GET. They are also
    empty if the version is a revisit whose body is not in the data set, so that the next response has a body.

    Args:
        dataset: an open `Dataset` whose records are pages with their `page_key`, or `None` before the first crawl.
        url: the URL, or another key.

    Raises:
        TypeError: ``dataset`` is not a `Dataset`.
        Other errors: those of `Dataset.get_by_key`, and those of decoding if the newest version is not a page.
    """
    if dataset is None:
        return Conditions({}, None)
    numbers = await _versions(_check(dataset).keys, url)
    if not numbers:
        return Conditions({}, None)
    (page,) = await _read(dataset, numbers[-1:])
    if not is_revisit(page):
        return Conditions(validators(page), page)
    (original,) = await _originals(dataset, [page])
    if original is None:
        return Conditions({}, None)
    found = validators(page)
    if not found and page["status"] == 304:
        found = validators(original)  # which the 304 has confirmed; any other response has its own
    return Conditions(found, page)


@overload
async def resolve(dataset: PageDataset, page: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
async def resolve(dataset: PageDataset, page: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]: ...
async def resolve(
    dataset: PageDataset, page: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a page with its body, or a list of pages with their bodies.

    A revisit is returned as the page that was crawled, as if it had been stored whole. Any other page is returned
    unchanged. For a 304, the status, the headers and the features of the body come from the version that the server has
    confirmed, except for headers that the 304 has updated.

    Args:
        dataset: an open `Dataset` that has the body: the page's own data set, or several opened as one by a pattern.
        page: a page, or a list of pages, as `PAGE` decodes them. Resolving a list is much faster than resolving its
            pages one by one, but holds all bodies in memory, and a few other versions of each page.

    Raises:
        KeyError: the body is not in the data set.
        TypeError: ``dataset`` is not a `Dataset`, or ``page`` is not a page.
    """
    _check(dataset)
    if isinstance(page, Mapping):
        (whole,) = await _resolve(dataset, [page])
        return whole
    if isinstance(page, str | bytes | bytearray) or not isinstance(page, Sequence):
        raise _no_page(page)
    return await _resolve(dataset, page)


async def _resolve(dataset: PageDataset, found: Sequence[Mapping[str, Any]]) -> list[Page]:
    for page in found:
        if not isinstance(page, Mapping) or "url" not in page:
            raise _no_page(page)
    originals = iter(await _originals(dataset, list(filter(is_revisit, found))))
    whole = []
    for page in found:
        original = next(originals) if is_revisit(page) else None
        if is_revisit(page) and original is None:
            raise RecordKeyError(
                f"{dataset.manifest.path}: the page {page['url']} of {page.get('date')} has no body: it revisits "
                f"{page.get('refers_to_url') or page['url']} of {page.get('refers_to_date') or 'an unknown date'}, "
                "which is missing"
            ).with_remedy("if another data set has that page, open both as one by a pattern, such as 'crawl/pages-*'")
        whole.append(dict(page) if original is None else resolved(page, original))
    return whole


class _Search:
    """A search among the versions of a page, newest first, for the version that has the body of a revisit.

    Attributes:
        found: the version found so far, or `None`.
        numbers: the numbers of the records not yet examined.
    """

    def __init__(self, revisit: Mapping[str, Any], numbers: list[int]) -> None:
        self.found: Page | None = None
        self.numbers = numbers
        self._revisit = revisit
        self._others: list[Page] = []

    def look(self, page: Page) -> None:
        """Examine a version, unless the search has ended."""
        revisit = self._revisit
        if is_revisit(page) or not self.numbers:
            return
        same_date = page["date"] == revisit.get("refers_to_date", "")
        same_body = page["digest"] == revisit.get("digest")
        if (same_body and same_date) or (page["record_id"] and page["record_id"] == revisit.get("refers_to")):
            self.found, self.numbers = page, []
        elif same_body:
            self.found = self.found or page  # the date differs; a version with the right date may follow
        elif same_date and page["record_id"]:
            # In a web archive from a different tool, the digest may describe the compressed body as it was sent.
            self._others.append(page)

    async def look_elsewhere(self, contents: _Keys) -> None:
        """If the body was not found, continue the search in the records whose content has the same digest."""
        digest = self._revisit.get("digest")
        if self.found is None and digest:
            self.numbers = await _versions(contents, digest)

    def end(self) -> Page | None:
        """Return the result of the search, or `None` if the body was not found."""
        return self.found or (self._others[0] if len(self._others) == 1 else None)


async def _originals(dataset: PageDataset, revisits: Sequence[Mapping[str, Any]]) -> list[Page | None]:
    """Return for each revisit the page that has its body, or `None` if that page is not stored."""

    async def search(revisit: Mapping[str, Any]) -> _Search:
        url = revisit.get("refers_to_url") or revisit["url"]
        key = page_key({"url": url, "method": revisit.get("method", "GET")})
        return _Search(revisit, await _versions(dataset.keys, key))

    searches = await for_each(search, revisits, tasks=_TASKS)
    await _look(dataset, searches)
    # The page that had the body may have been deleted, but a different page may have the same body.
    for each in searches:
        await each.look_elsewhere(dataset.contents)
    await _look(dataset, searches)
    return [each.end() for each in searches]


async def _look(dataset: PageDataset, searches: Sequence[_Search]) -> None:
    """Read and examine the records of the searches."""
    while left := [each for each in searches if each.numbers]:
        # Most revisits refer to the last version that had a body.
        parts = [each.numbers[-_AT_ONCE:] for each in left]
        found = iter(await _read(dataset, [number for part in parts for number in part]))
        for each, part in zip(left, parts, strict=True):
            for page in reversed([next(found) for _ in part]):
                each.look(page)
            del each.numbers[-_AT_ONCE:]


async def _versions(keys: _Keys, key: str | bytes) -> list[int]:
    """Return the numbers of the records with a key in the order of commits, or ``[]`` if the key does not exist."""
    try:
        numbers: list[int] = (await keys.versions(key)).tolist()
    except RecordKeyError:
        return []
    return numbers


async def _read(dataset: PageDataset, numbers: list[int]) -> list[Page]:
    """Read records and decode them as pages."""
    records = await dataset.get_many(numbers)

    def decode() -> list[Page]:
        return [_PAGE.decode(record) for record in records]

    return decode() if sum(map(len, records)) <= _LARGE else await in_thread(decode)


def _no_page(page: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"a page must be a dict with a url, not {type(page).__name__}; decode a record with pages.PAGE.decode"
    )


def _check(dataset: PageDataset) -> PageDataset:
    if not callable(getattr(getattr(dataset, "keys", None), "versions", None)):
        raise ArgumentTypeError(
            f"the data set must be one that asyncrec.open_dataset has opened, not {type(dataset).__name__}"
        )
    dataset.lookup.check_open()
    return dataset
