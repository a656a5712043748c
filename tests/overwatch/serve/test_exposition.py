"""Pages over HTTP: the format that was asked for, rendered once a state."""

import asyncio
import gzip

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from overwatch.serve.exposition import MOST_FORMS, Exposition
from overwatch.serve.metrics_text import Family, FamilyBuilder


class Counting:
    """A source whose page states how often it was made."""

    def __init__(self) -> None:
        self.made = 0
        self.state = object()

    def families(self) -> list[Family]:
        """One family with the number of this page."""
        self.made += 1
        builder = FamilyBuilder()
        builder.gauge("made", "How many?", {}, self.made)
        return list(builder.families())

    @property
    def exposition(self) -> Exposition:
        """Of this source."""
        return Exposition(self.families, lambda: self.state)


PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_3 = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", PLAIN), ("*/*", PLAIN), ("text/html", PLAIN), ("text/plain;version=0.0.4", PLAIN),
        ("application/openmetrics-text;version=x", PLAIN), ("text/plain;version=", PLAIN),
        ("application/openmetrics-text;version=1.0.0", f"{OPEN}; escaping=underscores"),
        (PROMETHEUS_3, f"{OPEN}; escaping=allow-utf-8"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_page_is_in_the_format_that_is_asked_for(accept: str, content_type: str, encoding: str) -> None:
    """Whatever the header has, a scraper gets a page; packed where it takes that."""

    async def scrape() -> tuple[str, str]:
        server = TestServer(Counting().exposition.app())
        await server.start_server()
        headers = {"Accept": accept, "Accept-Encoding": encoding}
        async with (
            ClientSession(auto_decompress=False) as client,
            client.get(server.make_url("/metrics"), headers=headers) as answer,
        ):
            body = await answer.read()
        await server.close()
        shown = gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
        return answer.headers["Content-Type"], shown.decode()

    shown_type, text = asyncio.run(scrape())

    assert shown_type == content_type
    assert "made 1.0\n" in text
    assert text.endswith("# EOF\n") == shown_type.startswith("application/openmetrics-text")


def test_a_state_is_rendered_once_a_format() -> None:
    """A new one anew; no number of formats is remembered without end."""
    source = Counting()
    exposition = source.exposition
    for n in range(100):
        exposition.page(f"application/openmetrics-text;version=1.0.{n}")
    assert source.made == 1
    assert len(exposition._pages) == MOST_FORMS

    source.state = object()
    assert b"made 2.0" in exposition.page()[0]
