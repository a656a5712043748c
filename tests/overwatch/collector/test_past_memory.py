"""What earlier lives journalled is folded while there is memory for it."""

import pytest

from overwatch.collector.health import Health
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.past_memory import PastMemory

MIB = 1 << 20


def test_where_memory_comes_back_the_past_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing uses is given back first; where that gives next to nothing no more is tried."""
    used, given, health = [1000], [200, 10, 0], Health()

    def reclaim() -> None:
        used[0] -= given.pop(0)

    monkeypatch.setattr("overwatch.collector.past_memory.reclaim", reclaim)
    limits = LimitsConfig(limit_mib=1000, spike_limit_mib=0)
    past = PastMemory(health, limits, resident=lambda: used[0] * MIB)

    assert past.has_room()
    used[0] = 905
    assert not past.has_room()
    used[0] = 1
    assert not past.has_room()
    assert given == [0]
    past.done(7)
    assert "left out of the live view: the last 7 batches" in health.degraded["resume"]
    assert "1000 MiB are the memory to accept within" in health.degraded["resume"]
