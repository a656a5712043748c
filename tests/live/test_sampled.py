"""A real cluster whose learner samples: replay that answers late starves it, and the hint names the way.

The programs are those of `overwatch-rl cluster --local --algorithm dqn --collector`.
"""

from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from overwatch.snapshot import Snapshot
from overwatch_rl.learner.config import learner_config
from tests.overwatch_rl.cluster.running import Running, behind_a_slow_wire, settings

UPDATES = 12
LATE_S = 0.2
"""Of each answer: a gradient step waits for one."""
GIVEN = {
    "world": "gym:CartPole-v1", "algorithm": "dqn", "batch": {"steps": 16, "envs": 8}, "heartbeat_s": 5,
    "dqn": {"hidden": 8, "batch": 8, "gradient_steps": 8, "first_at": 256, "capacity": 4096},
}  # fmt: skip


@pytest.mark.sampled(2, of="what holds a real cluster back")
@pytest.mark.timeout(600)
def test_replay_that_answers_late_starves_a_learner_that_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its waits within an update count as waits, and its actors wait for it too."""
    for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with ExitStack() as stack:
        late = behind_a_slow_wire(stack, LATE_S)
        own = {"run_id": "late", "trace": None, "has_collector": True, "is_reporting": True}
        with Running(settings(tmp_path, learner_config(GIVEN), **own), late) as running:
            updates = tmp_path / "updates.jsonl"
            running.until(
                lambda: updates.exists() and len(updates.read_bytes().splitlines()) >= UPDATES, "some updates"
            )
    lines = (tmp_path / "tower" / "snapshots.jsonl").read_bytes().splitlines()
    shots = [msgspec.json.decode(line, type=Snapshot) for line in lines]
    starved = [
        shot.system.bound.hint or ""
        for shot in shots
        if shot.system.bound is not None and shot.system.bound.state == "STARVED"
    ]

    assert any("replay or the way to it is slow" in hint for hint in starved)
    assert any(
        one.code == "queue-starved" and "replay or the way to it is slow" in (one.hint or "")
        for shot in shots
        for one in shot.findings
    )
