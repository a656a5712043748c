"""What was away for long is found soon after it is back: nobody's pause has grown beyond 2 s."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from overwatch_rl.replay import connection
from overwatch_rl.replay.connection import Patience
from overwatch_rl.web import retrying
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.weights.made import Run

MOST_S = 2.0
LONG = 100
"""Tries while it is away."""
JITTER = 1.2
"""Of gRPC's pauses, at most."""


class Away:
    """A channel that does not answer."""

    requested = 0

    def newest(self) -> bytes | None:
        """Never."""
        self.requested += 1
        raise ConnectionError("away")

    def artifact(self, version: object) -> bytes:
        """Never."""
        raise ConnectionError(version)

    def wait(self, timeout_s: float) -> None:
        """At once."""

    def close(self) -> None:
        """Nothing to let go of."""


def reconnect_s(options: Iterable[tuple[str, Any]]) -> float:
    """The longest pause of a gRPC channel."""
    return JITTER * float(dict(options)["grpc.max_reconnect_backoff_ms"]) / 1000


def replay_s() -> float:
    """The longest pause, which jitter only shortens, and that of the connection below it."""
    return Patience().longest_pause_s + reconnect_s(connection._CHANNEL)


def orchestrator_s() -> float:
    """Jitter only shortens it."""
    return retrying.LONGEST_WAIT_S


@pytest.mark.parametrize("longest_s", [replay_s, orchestrator_s])
def test_a_client_looks_again_soon_however_long_it_has_tried(longest_s: Callable[[], float]) -> None:
    """The pause, with that of the connection."""
    assert longest_s() <= MOST_S


def test_an_actor_looks_for_weights_soon_however_long_there_were_none(tmp_path: Path) -> None:
    """After each fault the next try comes within the time."""
    now, channel = [0.0], Away()
    subscriber = Subscriber(channel, Run(tmp_path).accepted(), clock=lambda: now[0])
    for tries in range(1, LONG):
        subscriber.poll()
        assert channel.requested == tries
        now[0] += MOST_S
