"""How old what a slow collector shows may grow."""

from collections import deque

import pytest

from overwatch.sdk.exporter.core import FIRST_S, MOST_S, Backlog

WINDOW_S = 0.1
SIGNALS = 4
"""Requests each time: facts, numbers, metrics, spans."""
WHILE_S = 300


def _oldest_s(request_s: float) -> tuple[float, int]:
    """A collector that takes so long for a request: how old the oldest was on arrival, and how many came."""
    backlog, waiting = Backlog(), deque[float]()
    gathered_since, free_at, oldest_s, arrived = 0.0, 0.0, 0.0, 0
    for tick in range(1, int(WHILE_S / WINDOW_S)):
        now = tick * WINDOW_S
        while waiting and free_at <= now:
            free_at = max(free_at, now - WINDOW_S) + request_s
            oldest_s, arrived = max(oldest_s, free_at - waiting.popleft()), arrived + 1
        is_behind = bool(waiting) or free_at > now
        if backlog.is_due(now, is_behind=is_behind):
            waiting.extend([gathered_since] * SIGNALS)
            backlog.left(now, is_behind=is_behind)
            gathered_since = now
    return oldest_s, arrived


@pytest.mark.parametrize("request_s", [0.3, 0.5, 1.0, 1.5])
def test_a_slow_collector_is_given_fewer_requests_and_shows_nothing_old(request_s: float) -> None:
    """Whatever it takes for a request, what arrives is no older than a few times that of one look."""
    oldest_s, arrived = _oldest_s(request_s)

    assert oldest_s < 3 * MOST_S
    assert arrived > WHILE_S / MOST_S


def test_without_a_backlog_all_leaves_at_once() -> None:
    """A collector that keeps up gets each window."""
    oldest_s, arrived = _oldest_s(0.001)

    assert oldest_s < 2 * WINDOW_S
    assert arrived > 0.9 * SIGNALS * WHILE_S / WINDOW_S


def test_what_waits_behind_a_backlog_leaves_after_a_while() -> None:
    """A collector that is away: the spool gets what gathered, each time after twice the time."""
    backlog, now, gaps = Backlog(), 0.0, []
    backlog.left(now, is_behind=False)
    for _ in range(5):
        since = now
        while not backlog.is_due(now, is_behind=True):
            now += 0.5
        gaps.append(now - since)
        backlog.left(now, is_behind=True)

    assert gaps == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, MOST_S, MOST_S]


def test_a_backlog_that_is_gone_is_forgotten() -> None:
    """What comes next behind a new one waits the first time again."""
    backlog = Backlog()
    for _ in range(4):
        backlog.left(0.0, is_behind=True)
    backlog.left(10.0, is_behind=False)

    assert backlog.is_due(10.0 + FIRST_S, is_behind=True)
    assert not backlog.is_due(10.0 + FIRST_S / 2, is_behind=True)
