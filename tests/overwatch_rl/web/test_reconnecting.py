"""A channel finds a server that is slow to answer, and one that comes back."""

from pathlib import Path

import grpc

from overwatch_rl.web.reconnecting import LONGEST_PAUSE_S, RECONNECTING
from tests.overwatch_rl.replay.serving import served
from tests.overwatch_rl.servers import SlowWire


def test_a_server_behind_a_slow_wire_is_connected_to(tmp_path: Path) -> None:
    """Though its first word takes longer than the longest pause between two tries."""
    with (
        served(tmp_path) as replay,
        SlowWire(replay.port, 3 * LONGEST_PAUSE_S) as wire,
        grpc.insecure_channel(wire.address, options=RECONNECTING) as channel,
    ):
        grpc.channel_ready_future(channel).result(60.0)
        assert wire.met > 0
