"""What holds a real cluster back is named: replay that answers late, a store that is slow, or nothing at all.

The programs are those of `overwatch-rl cluster --local --collector`, with what decides a run by default.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from overwatch.generate.rules import Plan
from overwatch.snapshot import Snapshot
from overwatch_rl.cluster.process import Cluster
from overwatch_rl.learner.config import LearnerConfig, learner_config
from tests.live.flying import fired, pages
from tests.overwatch_rl.cluster.running import Running, behind_a_slow_wire, config, settings
from tests.overwatch_rl.servers import FaultProxy, moto_address, s3_url

__all__ = ["moto_address"]
pytestmark = pytest.mark.timeout(600)
REAL: Final = Plan(scrape_s=1, update_s=1)
"""Holds and look-backs as shipped."""
SAVED: Final = "learner.checkpoint_duration"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
        monkeypatch.setenv(name, str(tmp_path))


def _flown(
    folder: Path, given: LearnerConfig, updates: int, kind: type[Cluster] = Cluster, **own: Any
) -> list[Snapshot]:
    """What a collector made of a cluster that trained so long."""
    made = settings(folder, given, run_id="bound", has_collector=True, is_reporting=True, **own)
    with Running(made, kind) as running:
        running.more(updates, "some updates")
    lines = (folder / "tower" / "snapshots.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Snapshot) for line in lines]


def _saved(shots: list[Snapshot]) -> float:
    """Seconds of a checkpoint, on average."""
    newest = [one for shot in shots for one in shot.tallies if one.name == SAVED][-1]
    assert newest.total is not None
    assert newest.count
    return newest.total / newest.count


def _bounds(shots: list[Snapshot]) -> list[tuple[str, str]]:
    """States of the run as a whole, with the hint."""
    return [
        (shot.system.bound.state, shot.system.bound.hint or "")
        for shot in shots
        if shot.system.bound is not None
    ]


def test_a_healthy_cluster_as_it_is_by_default_is_not_at_fault(tmp_path: Path) -> None:
    """From its start to its end no alert fires; it learns or takes turns; findings are of its policy only."""
    shots = _flown(tmp_path, learner_config({}, {}), 30)
    states = {state for state, _ in _bounds(shots)}
    found = [one for shot in shots for one in shot.findings]

    assert states <= {"LEARNER-BOUND", "SYNC-BOUND", "unknown"}
    assert states & {"LEARNER-BOUND", "SYNC-BOUND"}
    assert {one.code for one in found if one.severity == "critical"} == set()
    assert {one.code for one in found if one.subject.scope != "policy"} == set()
    assert fired(*pages(tmp_path / "tower" / "otlp"), tmp_path, REAL) == set()
    assert _saved(shots) < 1.0


@pytest.mark.sampled(2, of="what holds a real cluster back")
def test_replay_that_answers_late_starves_the_learner(tmp_path: Path) -> None:
    """Its actors hardly collect either: the way between is what is slow, and the hint states it."""
    with ExitStack() as stack:
        shots = _flown(tmp_path, learner_config({}, {}), 12, behind_a_slow_wire(stack, 1.2))
    starved = [hint for state, hint in _bounds(shots) if state == "STARVED"]

    assert any("replay or the way to it is slow" in hint for hint in starved)
    assert any(
        one.code == "queue-starved" and "replay or the way to it is slow" in (one.hint or "")
        for shot in shots
        for one in shot.findings
    )


@pytest.mark.sampled(2, of="what holds a real cluster back")
def test_a_slow_store_holds_actors_back_and_makes_checkpoints_take_long(
    tmp_path: Path, moto_address: str
) -> None:
    """Actors are WEIGHTS-BOUND. Saving takes seconds beside training, which is never IO-BOUND for it."""
    given = config(checkpoint={"every_steps": 512, "keep": 3})
    with FaultProxy(moto_address, rate=1.0, kinds=("slow",)) as proxy:
        proxy.slow_s = 0.1
        shots = _flown(tmp_path, given, 8, bucket=s3_url(proxy.address, "slow"))
    actors = [
        one.bound
        for shot in shots
        for one in shot.processes
        if one.name.startswith("actor") and one.bound is not None and one.bound.state == "WEIGHTS-BOUND"
    ]

    assert actors
    assert actors[-1].hint == "send weights less often, in a smaller type, or over a faster way"
    assert any(one.code == "weights-slow" for shot in shots for one in shot.findings)
    assert any("is WEIGHTS-BOUND: send weights" in hint for _, hint in _bounds(shots))
    assert _saved(shots) > 1.0
    assert "IO-BOUND" not in {state for state, _ in _bounds(shots)}


@pytest.mark.sampled(2, of="what holds a real cluster back")
def test_a_slow_store_makes_a_learner_wait_where_its_table_is_small(
    tmp_path: Path, moto_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IO-BOUND: what it learned from fills the table until it is saved. The hint has the store and a time."""
    monkeypatch.setenv("OVERWATCH_REPLAY_TABLE", "experience:items=96")
    given = config(
        batch={"steps": 16, "envs": 8, "ahead": 64, "max_age": None},
        checkpoint={"every_steps": 512, "keep": 3},
    )
    with FaultProxy(moto_address, rate=1.0, kinds=("slow",)) as proxy:
        proxy.slow_s = 0.1
        shots = _flown(tmp_path, given, 24, bucket=s3_url(proxy.address, "small"))
    hints = [hint for state, hint in _bounds(shots) if state == "IO-BOUND"]

    assert hints
    assert hints[-1].startswith(
        "faster storage for checkpoints, or a larger table of replay; the newest save took"
    )
    assert hints[-1].endswith("s to s3://bucket/small/checkpoints")
    assert any(one.code == "io-starvation" and one.hint in hints for shot in shots for one in shot.findings)
