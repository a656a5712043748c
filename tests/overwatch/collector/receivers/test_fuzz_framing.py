"""Connections with the OTLP/HTTP door, request after request, cut anywhere: whatever is said has its answer.

A door that answers plain requests ahead of the web server, and one that has the web server alone, hear the
same, and must say the same and take in the same. A few thousand requests in every run, a million with `long`;
`OVERWATCH_FUZZ_SEED` and `OVERWATCH_FUZZ_COUNT` choose others for the long one.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterator

import pytest

from tests.overwatch.collector.receivers.fuzz_http import whole
from tests.overwatch.collector.receivers.fuzz_lines import Door, Seen, compare
from tests.overwatch.collector.receivers.fuzzing import messages

SHORT, LONG = 3000, 1_000_000
ANSWERED = frozenset({100, 200, 400, 403, 404, 405, 408, 411, 413, 415, 417, 431, 501, 505})


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The web server tells every bad head, which is what comes here."""
    log = logging.getLogger("aiohttp.server")
    log.disabled = True
    yield
    log.disabled = False


def check(seed: int, count: int) -> Seen:
    """Say so many requests at both doors."""
    seen = asyncio.run(compare(seed, count))
    assert seen.requests >= count
    assert {200, 400, 413} <= set(seen.statuses) <= ANSWERED
    assert seen.taken > seen.ahead > count // 10
    return seen


def test_whatever_a_connection_says_comes_to_the_same_ahead() -> None:
    """Honest requests and odd ones in a row: the answers, what is taken in and the end are the same."""
    check(11, SHORT)


def test_what_comes_behind_a_body_does_not_cost_its_answer() -> None:
    """A request ahead with strange bytes behind its last piece is answered before the connection ends."""

    async def said(*, ahead: bool) -> list[int]:
        door, words = Door(ahead=ahead), whole(messages()[0])
        await door.open()
        came = await door.hear(
            [(words, True), (words[:-40], True), (words[-40:-20], True), (words[-20:] + b"\0", True)]
        )
        await door.close()
        return came.statuses

    alone = asyncio.run(said(ahead=False))
    assert alone[:2] == [200, 200]
    assert asyncio.run(said(ahead=True)) == alone


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_requests_come_to_the_same_ahead() -> None:
    """The same, a million times."""
    count = int(os.environ.get("OVERWATCH_FUZZ_COUNT", LONG))
    began = time.monotonic()
    seen = check(int(os.environ.get("OVERWATCH_FUZZ_SEED", "7")), count)
    took = time.monotonic() - began
    print(f"\n{seen.requests} requests on {seen.connections} connections in {took:.0f} s: {seen.ahead} ahead")
    print(f"{seen.taken} taken in; {dict(seen.statuses.most_common())}")
