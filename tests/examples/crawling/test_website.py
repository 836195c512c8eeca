from __future__ import annotations

from typing import Any

import anyio
import pytest
from crawling.website import (
    MAX_PAGE_BYTES,
    USER_AGENT,
    NotFetched,
    Pace,
    SiteUnreachable,
    is_redirect,
    links_in,
    open_site,
)
from site_server import Answer, SiteServer

from asyncrec import pages
from asyncrec.testing._clock import virtual_backend


def page(
    body: str, *, url: str = "http://h/a/b.html", content_type: str = "text/html; charset=utf-8"
) -> dict[str, Any]:
    return pages.page(url, body.encode(), status=200, content_type=content_type)


@pytest.mark.parametrize(
    ("href", "link"),
    [
        ("c.html", "http://h/a/c.html"),
        ("/c.html#part", "http://h/c.html"),
        ("../x%20y.py", "http://h/x%20y.py"),
        ("//other/c", "http://other/c"),
        (" d ", "http://h/a/d"),
        ("https://other/", "https://other/"),
        ("?q=1", "http://h/a/b.html?q=1"),
    ],
)
def test_links_are_absolute_without_fragment(href: str, link: str) -> None:
    assert links_in(page(f'<p><A class=x HREF="{href}">text</a>')) == [link]


@pytest.mark.parametrize("href", ["mailto:a@b.c", "javascript:void(0)", "http://[", "ftp://h/x", ""])
def test_links_exclude_addresses_other_than_web(href: str) -> None:
    assert links_in(page(f'<a href="{href}">text</a>')) == []


def test_links_come_only_from_html() -> None:
    assert links_in(page('<a href="c">', content_type="text/plain")) == []


def test_links_before_broken_markup_are_found_once() -> None:
    assert links_in(page('<a href="c"><a href="c"><![nonsense[<a href="d">')) == ["http://h/a/c"]


def test_redirect_links_to_location() -> None:
    moved = pages.page("http://h/a", status=301, headers={"location": "/a/"})
    assert is_redirect(moved)
    assert links_in(moved) == ["http://h/a/"]


@pytest.mark.parametrize(("status", "headers"), [(200, {"Location": "/a/"}), (304, {}), (201, {"Location": "/a/"})])
def test_response_without_new_location_is_not_redirect(status: int, headers: dict[str, str]) -> None:
    assert not is_redirect(pages.page("http://h/a", status=status, headers=headers))


class TestPace:
    pytestmark = pytest.mark.anyio

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> object:
        return virtual_backend(request.param)

    async def test_requests_of_concurrent_tasks_are_spaced_by_delay(self) -> None:
        pace, turns = Pace(2.0), []

        async def ask() -> None:
            await pace.turn()
            turns.append(anyio.current_time())

        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(ask)
        assert [turn - began for turn in turns] == pytest.approx([0, 2, 4, 6])

    async def test_pace_honours_pause_requested_by_site(self) -> None:
        pace = Pace(1.0)
        began = anyio.current_time()
        await pace.turn()
        pace.hold(30)
        await pace.turn()
        assert anyio.current_time() - began == pytest.approx(30)


@pytest.mark.anyio
class TestSite:
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"  # aiohttp needs asyncio

    @pytest.fixture(autouse=True)
    def _no_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    async def test_site_disallows_robots_exclusions_and_other_hosts(self) -> None:
        rules = b"User-agent: *\nDisallow: /private/\n"
        with SiteServer({"/robots.txt": (200, {}, rules)}) as server:
            async with open_site(server.url, delay=0, never=frozenset({"attic"})) as site:
                assert site.allows(f"{server.url}public/a.html")
                assert not site.allows(f"{server.url}private/a.html")
                assert not site.allows(f"{server.url}old/attic/a.html")
                assert not site.allows("http://127.0.0.1:1/public/a.html")
                assert not site.allows("http://elsewhere.example/")

    async def test_site_without_robots_txt_allows_all(self) -> None:
        with SiteServer({}) as server:
            async with open_site(server.url, delay=0) as site:
                assert site.allows(f"{server.url}private/a.html")

    async def test_site_with_failing_robots_txt_is_not_crawled(self) -> None:
        """RFC 9309, section 2.3.1.4, requires this."""
        with SiteServer({"/robots.txt": (503, {}, b"")}) as server:
            with pytest.raises(SiteUnreachable, match=r"robots\.txt answers with status 503"):
                async with open_site(server.url, delay=0):
                    pytest.fail("opened")

    async def test_crawler_fetches_page_unchanged_and_sends_user_agent(self) -> None:
        body = b"\xff\x00<a href=x>"
        with SiteServer({"/b": (200, {"Content-Type": "application/x-test"}, body)}) as server:
            async with open_site(server.url.rstrip("/"), delay=0) as site:
                assert site.start_url == server.url
                page = await site.fetch(f"{server.url}b")
        assert (page["status"], page["content_type"], page["content"]) == (200, "application/x-test", body)
        assert server.asked == [("/robots.txt", USER_AGENT), ("/b", USER_AGENT)]

    async def test_redirect_is_returned_without_following(self) -> None:
        with SiteServer({"/old": (301, {"Location": "/new"}, b"")}) as server:
            async with open_site(server.url, delay=0) as site:
                page = await site.fetch(f"{server.url}old")
        assert links_in(page) == [f"{server.url}new"]
        assert ("/new", USER_AGENT) not in server.asked

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            ((404, {}, b"gone"), "status 404"),
            ((200, {}, bytes(MAX_PAGE_BYTES + 1)), "over 8 MiB"),
            ((200, {"Content-Length": "9"}, b"short"), "ClientPayloadError"),
        ],
    )
    async def test_failed_fetch_error_states_reason(self, answer: Answer, reason: str) -> None:
        with SiteServer({"/a": answer}) as server:
            async with open_site(server.url, delay=0) as site:
                with pytest.raises(NotFetched, match=reason):
                    await site.fetch(f"{server.url}a")

    async def test_unreachable_site_raises_one_clear_error(self) -> None:
        with SiteServer({}) as server:
            url = server.url
        with pytest.raises(SiteUnreachable, match="cannot be reached"):
            async with open_site(url, delay=0):
                pytest.fail("opened")
