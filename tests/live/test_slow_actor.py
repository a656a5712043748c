"""A real cluster whose actors are slow: each is ENV-BOUND, and the learner is STARVED because of them.

The programs are those of `overwatch-rl cluster --local`; a step of their environment takes 20 ms more.
"""

from pathlib import Path

import msgspec
import pytest

from overwatch.snapshot import Snapshot
from tests.overwatch_rl.cluster.running import Running, config, settings

ENDS_AT: int = 16
"""Updates, of a second each: shares of the time are those of several rollouts."""


@pytest.mark.sampled(2, of="what holds a real cluster back")
@pytest.mark.timeout(600)
def test_slow_actors_are_env_bound_and_the_learner_is_starved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hint of each: what to do about the environments, and who makes the learner wait."""
    for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    given = config(world="gym:tests.live.worlds:SlowAtOnce-v0", batch={"envs": 2, "steps": 32})
    made = settings(tmp_path, given, run_id="slow", has_collector=True, is_reporting=True)
    with Running(made) as running:
        running.more(ENDS_AT, "some updates")
    lines = (tmp_path / "tower" / "snapshots.jsonl").read_bytes().splitlines()
    shots = [msgspec.json.decode(line, type=Snapshot) for line in lines]
    actors = [
        one.bound
        for shot in shots
        for one in shot.processes
        if one.name.startswith("actor") and one.bound is not None and one.bound.state == "ENV-BOUND"
    ]
    starved = [
        shot.system.bound
        for shot in shots
        if shot.system.bound is not None and shot.system.bound.state == "STARVED"
    ]

    assert actors
    assert actors[-1].hint == "more envs a worker, asynchronous envs, more cores"
    assert starved
    assert any("is ENV-BOUND: more envs a worker" in (bound.hint or "") for bound in starved)
    assert any(
        one.code == "queue-starved" and "is ENV-BOUND" in (one.hint or "")
        for shot in shots
        for one in shot.findings
    )
