"""Trackers: W&B itself where it is installed, and what is missing where it is not."""

import sys
from pathlib import Path

import pytest

from overwatch_rl.rollouts.tracking import NoTracker, WandbTracker


def test_wandb_works_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network a run of the trainer's project and group is kept on disk, with its numbers."""
    wandb = pytest.importorskip("wandb", reason="pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = WandbTracker(dir=str(tmp_path))

    tracker.start("project", "group", "maths_0")
    run = tracker._run
    tracker.log({"group/score": 0.5}, step=3)
    assert (run.project, run.group, run.name) == ("project", "group", "maths_0")
    assert run.summary["group/score"] == 0.5
    tracker.finish()
    tracker.finish()
    wandb.teardown()

    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 1


def test_what_is_missing_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error is the line to install it."""
    monkeypatch.setitem(sys.modules, "wandb", None)

    with pytest.raises(ImportError, match=r'pip install "esper-overwatch\[wandb\]"'):
        WandbTracker()


def test_no_tracker_takes_everything() -> None:
    """The default may be called in any order."""
    tracker = NoTracker()
    tracker.finish()
    tracker.start(None, None, "x")
    tracker.log({"a": 1.0}, 0)
