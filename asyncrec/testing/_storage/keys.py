"""Cases for valid and invalid keys, and for listings."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from asyncrec.errors import ObjectNotFoundError
from asyncrec.testing._checks import check_equal, check_info, content, send_all
from asyncrec.testing._storage.hooks import StorageHooks, by_bytes, check_keys, keys_of

ODD_KEYS = (
    "a b", " leading and trailing ", "caf\u00e9", "\u65e5\u672c/\u8a9e", "\U0001f600", "100%", "%41", "a%2Fb", "a+b",
    "q?x=1&y=2", "a#b", "[x]*?", "'quoted' \"twice\"", "a:b", "~tilde", "...", "a..b", "x/..y", "<tag>&amp;", "a\\b",
    "k=v/date=2026-01-02", "deep/" * 20 + "key", "n" * 180,
)  # fmt: skip
REFUSED_KEYS = ("", "/a", "//a", "..", "../a", "a/../../b")


class KeyCases(StorageHooks):
    """The cases for keys and listings."""

    async def test_odd_keys(self) -> None:
        """Keys with any characters are written, read, listed and deleted without affecting other keys."""
        async with self.open_storage() as storage:
            for n, key in enumerate(ODD_KEYS):
                data = b"%d of them" % n
                check_info(await storage.put(key, data), key, data)
                assert await self.raw_get(storage, key) == data, f"{key!r} was written elsewhere"
            check_keys(by_bytes(await self.raw_list(storage)), ODD_KEYS, "raw_list")
            check_keys(await keys_of(storage), ODD_KEYS, "listing all")
            for n, key in enumerate(ODD_KEYS):
                data = b"%d of them" % n
                assert await storage.get(key) == data, f"{key!r} read from elsewhere"
                check_info(await storage.head(key), key, data)
                check_keys(await keys_of(storage, key), (k for k in ODD_KEYS if k.startswith(key)), f"listing {key!r}")
            for key in ODD_KEYS:
                await storage.delete(key)
                assert await self.raw_get(storage, key) is None, f"{key!r} is still there after its deletion"
            check_keys(await self.raw_list(storage), [], "raw_list after all objects were deleted")

    async def test_key_that_is_also_a_folder(self) -> None:
        """A key may also be the folder of another key. Both are objects, regardless of which was created first."""
        async with self.open_storage() as storage:
            for keys in (["n/1/x", "n/1", "n"], ["m", "m/1", "m/1/x"]):
                for key in keys:
                    await storage.put(key, key.encode())
                for key in keys:
                    check_equal(await self.raw_get(storage, key), key.encode(), f"{key!r}, read with raw_get")
                    check_equal(await storage.get(key), key.encode(), f"{key!r}, read")
            check_keys(await keys_of(storage), ["m", "m/1", "m/1/x", "n", "n/1", "n/1/x"], "listing all")
            await storage.delete("n/1")
            check_keys(await keys_of(storage, "n"), ["n", "n/1/x"], "listing 'n' when 'n/1' was deleted")
            check_keys(await keys_of(storage, "m/1", start_after="m/1"), ["m/1/x"], "listing 'm/1' after 'm/1'")

    async def test_rejected_keys(self) -> None:
        """A key that is empty, absolute or outside the root raises `ValueError` in every operation."""
        async with self.open_storage() as storage:
            for key in REFUSED_KEYS:
                for operation in (storage.get, storage.head, storage.delete, partial(storage.put, data=b"x")):
                    with pytest.raises(ValueError):  # noqa: PT011  # the message is the store's own
                        await operation(key)
            check_keys(await self.raw_list(storage), [], "raw_list after all keys should have been refused")

    async def test_listing_order(self) -> None:
        """Keys are listed in the order of their UTF-8 bytes, across folders, regardless of when they were written."""
        keys = [
            "c/2", "c/10", "c/1", "c-1", "c.d", "c0", "cc/1", "C/1", "b/z/z", "b/z-1", "b/z/a", "b/z.d",
            "\uff5e", "\U0001f600", "z", "\u00e9", "e", "e\u0301", "_x/1", ".x",
        ]  # fmt: skip
        async with self.open_storage() as storage:
            check_keys(await keys_of(storage), [], "listing nothing")
            await self.raw_put_many(storage, keys)
            check_keys(await keys_of(storage), keys, "listing all")
            for prefix in ("c", "c/", "cc/", "c/1", "b", "b/", "b/z", "b/z/", "\u00e9", "", "nothing", "c/nothing/"):
                expected = [key for key in keys if key.startswith(prefix)]
                check_keys(await keys_of(storage, prefix), expected, f"listing {prefix!r}")

    async def test_listing_start_after(self) -> None:
        """``start_after`` skips all keys up to and including itself, with any prefix, whether or not it exists."""
        keys = ["a/1", "a/2/x", "a/3", "ab", "b/1", "b-1", "\uff5e"]
        async with self.open_storage() as storage:
            await self.raw_put_many(storage, keys)
            marks = [*keys, "", "a", "a/", "a/2/", "a/25", "a/2/y", "a0", "b", "b/", "zz", "\U0001f600"]
            for after in marks:
                for prefix in ("", "a", "a/", "a/2", "b/", "nothing"):
                    expected = [key for key in keys if key.startswith(prefix) and key.encode() > after.encode()]
                    got = await keys_of(storage, prefix, start_after=after)
                    check_keys(got, expected, f"listing {prefix!r} after {after!r}")

    async def test_listing_pages(self) -> None:
        """A listing of more than one page (1,000 keys on S3 and GCS) returns each key once, and may be closed early.

        This also holds while other keys are created and deleted, so that a search for objects that no manifest lists
        neither misses an object nor counts one twice.
        """
        keys = [f"p/{n:05}" for n in range(1_005)]
        async with self.open_storage() as storage:
            await self.raw_put_many(storage, [*keys, "q"])
            check_keys(await keys_of(storage, "p/"), keys, "listing more than a page")
            got = await keys_of(storage, "p/", start_after="p/00001")
            check_keys(got, keys[2:], "listing more than a page, after the second")
            listing = storage.list_objects("p/")
            first = await anext(aiter(listing))
            assert first.key == keys[0], f"the listing began with {first.key!r}, not with {keys[0]!r}"
            if hasattr(listing, "aclose"):
                await listing.aclose()
            seen: list[str] = []
            async for info in storage.list_objects("p/"):
                if not seen:
                    for n in (0, 500, 1_002):
                        await storage.delete(f"p/{n:05}")
                    await self.raw_put(storage, "p/00001-new", b"x")
                seen.append(info.key)
            assert seen == by_bytes(seen), "listing while objects were created and deleted: not in order"
            assert len(set(seen)) == len(seen), "listing while objects were created and deleted: a key was listed twice"
            stable = {key for n, key in enumerate(keys) if n not in (0, 500, 1_002)}
            missed = by_bytes(stable - set(seen))
            assert not missed, (
                f"listing while objects were created and deleted: these remaining objects are missing: {missed[:5]}"
            )

    async def test_listing_omits_unpublished_objects(self) -> None:
        """While a sink is open, and after it has failed, its object is not listed, and `head` does not find it."""
        async with self.open_storage() as storage:
            with suppress(ZeroDivisionError):
                async with storage.open_sink("u/1") as sink:
                    await send_all(sink, content(sink.chunk_size + 1))
                    check_keys(await keys_of(storage), [], "listing while the only object is being written")
                    with pytest.raises(ObjectNotFoundError):
                        await storage.head("u/1")
                    raise ZeroDivisionError
            check_keys(await keys_of(storage), [], "listing when the only sink has failed")

    async def test_listing_stays_inside(self) -> None:
        """A prefix outside the root lists nothing, or raises `ValueError`."""
        async with self.open_storage() as storage:
            await storage.put("inside", b"x")
            for prefix in ("../", "..", "/", "a/../../"):
                try:
                    found = await keys_of(storage, prefix)
                except ValueError:
                    continue
                assert found == [], f"listing {prefix!r} found {found}"
