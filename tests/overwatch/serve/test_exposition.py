"""Pages that are made before somebody asks for them."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from overwatch.serve.exposition import IDLE_S, Exposition
from overwatch.serve.metrics_text import Family, FamilyKind

Scrape = Callable[..., Awaitable[str]]


class Counting:
    """A source whose page states how often it was made."""

    def __init__(self) -> None:
        self.made = 0
        self.state = object()
        self.broken = False

    def families(self) -> list[Family]:
        """One family with the number of this page."""
        if self.broken:
            raise RuntimeError("no page today")
        self.made += 1
        family = Family("made", FamilyKind.GAUGE, "How many?")
        family.put("", self.made)
        return [family]

    @property
    def exposition(self) -> Exposition:
        """Of this source."""
        return Exposition(self.families, lambda: self.state)


def scraping(exposition: Exposition, work: Callable[[Scrape], Awaitable[None]]) -> None:
    """Serve an exposition and scrape it."""

    async def serve() -> None:
        server = TestServer(exposition.app())
        await server.start_server()

        async def scrape(encoding: str = "identity") -> str:
            async with ClientSession(auto_decompress=False) as client:
                headers = {"Accept-Encoding": encoding}
                async with client.get(server.make_url("/metrics"), headers=headers) as answer:
                    body = await answer.read()
                    if answer.status != 200:
                        return str(answer.status)
            return (gzip.decompress(body) if encoding == "gzip" else body).decode().split()[-1]

        try:
            await work(scrape)
        finally:
            await server.close()

    asyncio.run(serve())


def test_a_scrape_is_given_the_page_that_was_made_ahead() -> None:
    """Whatever happened since: making a page is not a scrape's work."""
    source = Counting()
    exposition = source.exposition

    async def work(scrape: Scrape) -> None:
        assert await scrape() == "1.0"
        source.state = object()
        exposition.make_ahead()
        source.state = object()
        assert [await scrape(), await scrape()] == ["2.0", "2.0"]
        assert source.made == 2
        exposition.make_ahead()
        assert await scrape() == "3.0"
        exposition.stop_ahead()
        source.state = object()
        assert await scrape() == "4.0"

    scraping(exposition, work)


def test_only_what_somebody_takes_is_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that was never asked for, or not of late, costs nothing."""
    source = Counting()
    exposition = source.exposition
    exposition.make_ahead()
    assert source.made == 0

    async def work(scrape: Scrape) -> None:
        now = [100.0]
        monkeypatch.setattr("overwatch.serve.exposition.time.monotonic", lambda: now[0])
        assert await scrape("gzip") == "1.0"
        source.state, now[0] = object(), 100.0 + IDLE_S
        exposition.make_ahead()
        assert source.made == 1
        now[0] = 99.0 + IDLE_S
        exposition.make_ahead()
        source.state = object()
        assert [await scrape("gzip"), await scrape("identity")] == ["2.0", "3.0"]

    scraping(exposition, work)


def test_the_thread_goes_on_after_a_page_that_could_not_be_made() -> None:
    """A scrape meanwhile gets an error instead of an old page."""
    source = Counting()
    exposition = source.exposition

    async def until(scrape: Scrape, wanted: Callable[[str], bool]) -> None:
        for _ in range(200):
            if wanted(await scrape()):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"no such page; made {source.made}")

    async def work(scrape: Scrape) -> None:
        assert await scrape() == "1.0"
        exposition.start_ahead()
        source.broken, source.state = True, object()
        await until(scrape, lambda stated: stated == "500")
        source.broken, made = False, source.made
        await until(scrape, lambda stated: stated not in ("500", "1.0"))
        source.state = object()
        await until(scrape, lambda stated: stated != "500" and float(stated) > made + 1)

    scraping(exposition, work)
    exposition.stop_ahead()
    exposition.stop_ahead()


def test_a_thread_that_never_began_can_be_stopped() -> None:
    """As of a collector whose port was taken."""
    Counting().exposition.stop_ahead()
