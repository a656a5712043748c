"""The module in W&B's place: rows by W&B's steps, with the real package behind it and without."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overwatch.adapters import tensorboard, wandb
from overwatch.adapters.scalars import Scalars
from overwatch.catalog import KL
from overwatch.events import Measured, RunFinished, RunStarted
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.receiving import Received, local_run
from tests.overwatch.sdk.sink import Sink

VALUE_LOSS = "overwatch.policy.value_loss"


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No package of W&B's, and no run in progress."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    yield
    while wandb._current:
        wandb._current[-1].end()


def _run() -> tuple[wandb.Tracked, Received]:
    traced, received = local_run()
    run = wandb.Tracked(None, {}, "run")
    run.scalars = Scalars(lambda: traced)  # type: ignore[misc]  # where it is received
    return run, received


def _rows(received: Received) -> list[tuple[int, float]]:
    return [(update.index, update.values[VALUE_LOSS]) for update in received.of(Update)]


def test_each_call_is_a_row() -> None:
    """Without a step, and without `commit`."""
    run, received = _run()
    for loss in (3.0, 2.0):
        run.log({"losses/value_loss": loss})
    assert _rows(received) == [(1, 3.0), (2, 2.0)]
    assert run.step == 2


def test_a_row_is_whole_when_it_is_committed() -> None:
    """`commit=False` waits for a call that commits."""
    run, received = _run()
    run.log({"losses/approx_kl": 0.1}, commit=False)
    run.log({"losses/value_loss": 3.0})
    (update,) = received.of(Update)
    assert (update.values[KL.name], update.values[VALUE_LOSS]) == (0.1, 3.0)


def test_a_step_is_whole_when_a_greater_one_comes() -> None:
    """Calls of one step are one row; an older step is dropped, as W&B drops it."""
    run, received = _run()
    run.log({"losses/approx_kl": 0.1}, step=10)
    run.log({"losses/value_loss": 3.0}, step=10)
    run.log({"losses/value_loss": 2.0}, step=20)
    run.log({"losses/value_loss": 9.0}, step=15)
    run.finish()
    assert _rows(received) == [(1, 3.0), (2, 2.0)]
    assert received.of(Update)[0].values[KL.name] == 0.1
    assert [end.outcome for end in received.of(RunFinished)] == ["completed"]


def test_nested_names_are_joined_and_what_is_no_number_is_left_out() -> None:
    """Pictures, tables and texts are W&B's alone."""
    run, received = _run()
    run.log({"losses": {"mine": 1.0}, "note": "text", "image": object()})
    (update,) = received.of(Update)
    assert update.values == {"overwatch.custom.losses.mine": 1.0}


def test_a_run_is_named_and_configured_by_init(sink: Sink, absent: None) -> None:
    """Also what is set between `init` and the first row."""
    wandb.init(project="cart", name="first", config={"exp_name": "ppo", "num_envs": 8, "env_id": "Cart-v1"})
    wandb.config.seed = 3
    wandb.config.update({"gamma": 0.9}, allow_val_change=True)
    wandb.log({"losses/value_loss": 1.0})
    wandb.finish()
    (start,) = sink.events(RunStarted)

    assert (start.task, start.algo, start.n_envs) == ("first", "ppo", 8)
    assert (start.config["seed"], start.config["gamma"]) == ("3", "0.9")
    assert wandb.run is None


def _fail() -> None:
    with wandb.init(project="cart") as run:
        run.log({"losses/value_loss": 1.0})
        raise ValueError("NaN")


@pytest.mark.parametrize("way", ["block", "exit code"])
def test_a_run_ends_as_its_block_or_its_exit_code(sink: Sink, absent: None, way: str) -> None:
    """An exception that the caller catches, and a code that is not 0."""
    if way == "block":
        with pytest.raises(ValueError, match="NaN"):
            _fail()
    else:
        wandb.init(project="cart").log({"losses/value_loss": 1.0})
        wandb.finish(exit_code=2)
    reason = "ValueError: NaN" if way == "block" else "exit code 2"
    assert [(end.outcome, end.reason) for end in sink.events(RunFinished)] == [("failed", reason)]


def test_init_again_is_the_same_run_or_another(sink: Sink, absent: None) -> None:
    """As W&B has it: the same one, unless `reinit` asks for another."""
    first = wandb.init(project="a")
    assert wandb.init(project="b") is first
    first.log({"losses/value_loss": 1.0})
    second = wandb.init(project="c", reinit=True)
    assert second is not first
    assert wandb.run is second
    assert [end.outcome for end in sink.events(RunFinished)] == ["ended"]


def test_writers_of_tensorboard_report_to_the_run_that_is_synced(
    sink: Sink, absent: None, tmp_path: Path
) -> None:
    """CleanRL's `--track`: one run, which `finish` ends."""
    wandb.init(project="cart", sync_tensorboard=True, config={"env_id": "CartPole-v1"})
    writer = tensorboard.SummaryWriter(str(tmp_path))
    writer.add_scalar("losses/approx_kl", 0.1, 1)
    writer.close()
    assert tensorboard.shared
    wandb.finish()

    assert [start.task for start in sink.events(RunStarted)] == ["CartPole-v1"]
    assert [one for one in sink.events(Measured) if KL.name in one.values]
    assert tensorboard.shared == []


def test_without_the_package_all_else_does_nothing(absent: None, caplog: pytest.LogCaptureFixture) -> None:
    """Calls, classes, attributes of what they give; one line states it."""
    with caplog.at_level(logging.WARNING):
        run = wandb.init(project="cart")
    run.define_metric("a", step_metric="b")
    run.watch(object(), log="all")
    artifact: Any = wandb.Artifact("model", type="model")
    artifact.add_file("x")
    run.log_artifact(artifact).wait()
    with artifact.new_file("y") as file:
        file.write("z")
    wandb.Image([[0]])
    run.summary["best"] = 3.0
    assert not list(wandb.Api().runs("a"))
    assert not wandb.Settings(start_method="thread").anything
    assert run.summary.best == 3.0
    with pytest.raises(AttributeError, match="nothing"):
        _ = run.config.nothing
    assert run.config.setdefaults({"a": 1}) is None
    assert run.config.a == 1
    assert [record.message for record in caplog.records] == [
        "wandb is not installed: what is logged is reported to Overwatch alone"
    ]


def test_a_number_before_init_goes_nowhere(absent: None) -> None:
    """Nothing raises."""
    wandb.log({"a": 1.0})
    wandb.finish()
    assert wandb.run is None


def test_the_real_package_has_every_call(sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offline run: its rows and summary are W&B's, and ours at the same time."""
    real = pytest.importorskip("wandb", reason="wandb is not installed (extra `wandb`)")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="cart", name="mine", dir=str(tmp_path), config={"exp_name": "ppo"}) as run:
        run.define_metric("losses/*", step_metric="global_step")
        wandb.log({"losses/value_loss": 3.0, "global_step": 128})
        wandb.log({"losses/value_loss": 2.0, "global_step": 256, "image": wandb.Histogram([1, 2])})
        assert wandb.run is run
        assert real.run is run.real
        assert run.summary["losses/value_loss"] == 2.0
        assert run.step == 2
    others = {name for name in real.__all__ if getattr(wandb, name, None) is not getattr(real, name)}
    assert others == {"init", "log", "finish"}
    losses = [
        one.values[VALUE_LOSS].array().tolist() for one in sink.events(Measured) if VALUE_LOSS in one.values
    ]
    assert losses[-1][-1] == 2.0
    assert sink.events(RunStarted)[0].task == "mine"
    assert [end.outcome for end in sink.events(RunFinished)] == ["completed"]
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
