"""A whole learner with real services that fail: training goes on, states it, and recovers."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from overwatch.events import LogLine, RunFinished, Severity, TrainingRecovered
from overwatch.feeds.recording import open_recording
from overwatch.otlp.decode import decode_batch
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.learner.process import is_out_of_memory
from overwatch_rl.orchestrator.core import CLOCKS
from overwatch_rl.orchestrator.states import Pace
from overwatch_rl.replay.chunk import Chunk
from tests.overwatch.collector.running import running
from tests.overwatch_rl.learner.flying import Flying, config
from tests.overwatch_rl.orchestrator.threaded import Operator, in_thread
from tests.overwatch_rl.replay.serving import served
from tests.overwatch_rl.servers import FaultProxy, s3_url

GOVERNING: dict[str, Any] = {"pace": Pace(least_s=0.01), "clocks": CLOCKS}


def notes(operator: Operator) -> str:
    """What the newest heartbeat notes besides."""
    return (operator.get().get("heartbeat") or {}).get("notes") or ""


@pytest.mark.timeout(300)
def test_storage_that_is_gone_stalls_checkpoints_and_weights_and_nothing_else(
    tmp_path: Path, moto_address: str
) -> None:
    """Actors act with the last version; afterwards a checkpoint is written and its chunks acknowledged."""
    with (
        FaultProxy(moto_address, rate=0.0, kinds=("error", "drop")) as proxy,
        in_thread(**GOVERNING) as orchestrator,
        served(tmp_path) as replay,
        Flying(
            tmp_path, config(), replay.address,
            bucket=s3_url(proxy.address, tmp_path.name), orchestrator=orchestrator.url,
        ) as flying,
    ):  # fmt: skip
        operator, gauges, counts = Operator(orchestrator.url), flying.meter.gauges, flying.meter.counts
        flying.until(flying.acknowledged, "a checkpoint is safe")
        assert (gauges["checkpoint_stalled"], counts["weights_publish error"]) == (0.0, 0)

        proxy.rate = 1.0
        flying.until(lambda: gauges["checkpoint_stalled"] == 1.0, "checkpoints stall")
        flying.until(lambda: "checkpoint_stalled" in notes(operator), "the heartbeat states it")
        flying.until(lambda: counts["weights_publish error"] >= 1, "weights are not published")
        stale, saved, kept = flying.sent.versions[-1], flying.saved(), flying.acknowledged()
        flying.more()
        assert flying.sent.versions[-1] == stale < flying.loop.version
        assert (flying.saved(), flying.acknowledged()) == (saved, kept)
        assert any(line.startswith("weights 001-") for line in flying.lines())

        proxy.rate = 0.0
        flying.until(lambda: flying.saved() > saved, "a checkpoint is written")
        flying.until(lambda: flying.acknowledged() > kept, "its chunks are acknowledged")
        flying.until(lambda: flying.sent.versions[-1] > stale, "actors adopt newer weights")
        flying.until(lambda: "checkpoint_stalled" not in notes(operator), "the heartbeat states it")
        assert gauges["checkpoint_stalled"] == 0.0
        assert "checkpoints are written again" in flying.lines()
        flying.until(lambda: "weights are published again" in flying.lines(), "the log states it")


@pytest.mark.timeout(300)
def test_replay_that_is_gone_pauses_a_learner_until_it_is_back(tmp_path: Path) -> None:
    """Degraded at once, paused after a while; the run stays healthy; nothing is trained meanwhile."""
    with (
        in_thread(**GOVERNING) as orchestrator,
        served(tmp_path) as replay,
        Flying(
            tmp_path, config(pause_after_s=1.0), replay.address, orchestrator=orchestrator.url
        ) as flying,
    ):  # fmt: skip
        operator, gauges = Operator(orchestrator.url), flying.meter.gauges
        flying.more()
        assert gauges["degraded"] == 0.0
        assert not any("away" in line for line in flying.lines())

        replay.kill()
        flying.until(lambda: gauges["degraded"] == 1.0, "it is degraded")
        flying.until(lambda: "replay is away, paused after 1 s" in notes(operator), "it is paused")
        still, waits = flying.loop.updates_done, flying.meter.counts["samples empty"]
        flying.until(lambda: flying.meter.counts["samples empty"] >= waits + 2, "it waits")
        assert flying.loop.updates_done == still
        assert operator.get("/health")["health"] == "healthy"

        with served(tmp_path, port=replay.port):
            flying.more()
            flying.until(lambda: notes(operator) == "", "the heartbeat states it")
            assert gauges["degraded"] == 0.0
            flying.close()  # while there is one to acknowledge to
    assert "replay answers again; training goes on" in flying.lines()


@pytest.mark.timeout(300)
def test_gradients_that_are_not_finite_cut_the_rate_and_roll_back_to_a_real_checkpoint(
    tmp_path: Path,
) -> None:
    """Rewards of an actor overflow for a while: each remedy is an event, and training goes on whole."""
    given = config(ppo={"popart": False}, recovery={"rollback_after": 2})
    with served(tmp_path) as replay, Flying(tmp_path, given, replay.address) as flying:
        flying.until(flying.saved, "a checkpoint is written")
        left = [2]

        def overflow(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
            if not left[0]:
                return chunks
            left[0] -= 1
            return [
                msgspec.structs.replace(
                    one, columns={**one.columns, "reward": np.full(one.steps, 3e38, np.float32).tobytes()}
                )
                for one in chunks
            ]

        flying.sent.change = overflow
        flying.until(lambda: flying.meter.counts["rollbacks"], "it is rolled back")
        flying.more()
    remedies = [fact for fact in flying.kept.facts if isinstance(fact, TrainingRecovered)]
    kept = find_checkpoint(tmp_path)

    assert [one.action for one in remedies] == ["learning_rate_cut", "rollback"]
    assert flying.meter.counts["learning_rate_cuts"] == 1
    assert flying.meter.counts["samples abandoned"] >= 2
    assert float(kept.tensors("optimizer.safetensors")["optimizer.lr"]) < given.learned.learning_rate
    assert all(bool(one.isfinite().all()) for one in kept.tensors("policy.safetensors").values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_between", [True, False])
def test_a_learner_without_memory_keeps_what_is_whole(tmp_path: Path, *, is_between: bool) -> None:
    """Between two updates it keeps the last one; within one its weights are of none, and are not kept."""

    def exhaust(*_: object) -> None:
        torch.empty(1 << 50)

    given = config(checkpoint={"every_steps": 100_000})
    with served(tmp_path) as replay, Flying(tmp_path, given, replay.address) as flying:
        flying.more()
        setattr(*((flying.loop, "_look") if is_between else (flying.loop.algorithm, "update")), exhaust)
        with pytest.raises(RuntimeError, match="allocate") as raised:
            flying.until(lambda: False, "it has no memory")
        done = flying.loop.updates_done
    stated = [fact for fact in flying.kept.facts if isinstance(fact, LogLine)]

    assert is_out_of_memory(raised.value)
    assert any(one.severity == Severity.CRITICAL and "out of memory" in one.message for one in stated)
    if is_between:
        assert find_checkpoint(tmp_path).state.updates == done
    else:
        with pytest.raises(ValueError, match="no checkpoint"):
            find_checkpoint(tmp_path)


def test_each_kind_of_memory_that_runs_out_is_known() -> None:
    """Python's, and PyTorch's of the host; any other error is none."""
    with pytest.raises(MemoryError) as pythons:
        bytearray(1 << 60)

    assert is_out_of_memory(pythons.value)
    assert not is_out_of_memory(RuntimeError("shapes differ"))


def lived(operator: Operator) -> None:
    """An earlier life of the run, that was tuned and then paused."""
    operator.create()
    operator.post("/heartbeat", {"run_id": "r", "status": "running", "step": 0})
    command = operator.post("/tune", {"values": {"learning_rate": 1e-4}})
    assert operator.get("/commands/next")["command"]["id"] == command["id"]
    changes = {"learning_rate": {"before": 1e-3, "after": 1e-4}}
    operator.post(f"/commands/{command['id']}/ack", {"outcome": "done", "changes": changes})
    operator.post("/heartbeat", {"run_id": "r", "status": "paused", "step": 0})
    assert operator.get()["state"] == "paused"


@pytest.mark.timeout(300)
def test_a_learner_begins_without_its_orchestrator_and_obeys_once_it_is_there(tmp_path: Path) -> None:
    """What the run's record states is caught up on: a tune of an earlier life, and that it is paused."""
    with (
        in_thread(pace=Pace(least_s=0.001), clocks=CLOCKS) as orchestrator,
        FaultProxy(orchestrator.url, rate=1.0, kinds=("error", "drop")) as proxy,
        served(tmp_path) as replay,
    ):
        operator = Operator(orchestrator.url)
        lived(operator)
        with Flying(tmp_path, config(), replay.address, orchestrator=proxy.address) as flying:
            flying.more()
            assert any("the orchestrator is away" in line for line in flying.lines())
            assert operator.get()["lineage"] == 0

            proxy.rate = 0.0
            flying.until(lambda: operator.get()["lineage"] == 1, "it attaches")
            algorithm: Any = flying.loop.algorithm
            still = flying.loop.updates_done
            assert algorithm.config.learning_rate == 1e-4
            assert operator.get()["state"] == "paused"
            assert flying.loop.updates_done == still
            assert operator.done(operator.post("/resume"))["status"] == "done"
            flying.more()


@pytest.mark.timeout(300)
def test_a_learner_process_without_memory_ends_with_its_reason(tmp_path: Path) -> None:
    """Status 1, a line on stderr, and for the tower and the files an outcome with what could not be had."""
    words = [
        "--run-id", "full", "--out", str(tmp_path / "run"), "--set", "world=gym:CartPole-v1",
        "--set", "algorithm=dqn", "--set", "dqn.hidden=10000000",
    ]  # fmt: skip
    env = os.environ | {
        "OVERWATCH_SPOOL_DIR": str(tmp_path / "spool"), "OVERWATCH_RING_DIR": str(tmp_path),
        "OVERWATCH_EXPORTER": "own",
    }  # fmt: skip
    with running(tmp_path / "tower") as service:
        endpoint = ["--endpoint", service.context.urls["otlp_http"]]
        command = [sys.executable, "-m", "overwatch_rl.cli", "learner", *words, *endpoint]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    ends = [
        record.event
        for batch in open_recording(tmp_path / "tower" / "otlp").batches()
        for record in decode_batch(batch).records
        if isinstance(record.event, RunFinished)
    ]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    reason = str(summary["reason"])

    assert done.returncode == 1, done.stderr
    assert f"Error: {reason}" in done.stderr
    assert "Traceback" not in done.stderr
    assert reason.startswith("out of memory; a restart goes on from the newest checkpoint: ")
    assert "you tried to allocate 400000000000000 bytes" in reason
    assert [(one.outcome, one.reason) for one in ends] == [("failed", reason)]
    assert summary["outcome"] == "failed"
