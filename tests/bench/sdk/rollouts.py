"""What a rollout costs the training thread: one call for all of its steps, beside calls for each of them.

Both in one process, in turns, of the same steps: 192 envs of nine slots, 60 steps. The time is the thread's
own CPU time; that of the whole process, with the drain thread, and that of the exporter are printed beside
it. An A/A control is the rollout twice.
"""

import contextlib
import functools
import gc
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from overwatch.catalog.stages import BY_CODE, Stage
from tests.bench.sdk.host import MISSING, Cores, collector
from tests.bench.sdk.stats import Goals, emit

ENVS, STEPS, SLOTS = 192, 60, 9
OPS, BLUEPRINTS = ("wait", "germinate", "advance", "fossilise", "prune"), ("norm", "attention", "conv")
STAGES = (Stage.DORMANT, Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING)
NAMES = tuple(f"r{place // 3}c{place % 3}" for place in range(SLOTS))
PAUSE_S = 1.0
"""Between two reports, in which what is in the background catches up."""


class Trainer:
    """A rollout of random steps, and both ways to report it."""

    def __init__(self, endpoint: str) -> None:
        import torch

        import overwatch.sdk

        heads = (("op", OPS), ("slot", NAMES), ("blueprint", BLUEPRINTS))
        self.run = overwatch.sdk.start(
            endpoint=endpoint, sample=False, quiet=True, n_envs=ENVS, slots=NAMES,
            words=overwatch.sdk.WordTables(heads=heads, blueprints=BLUEPRINTS),
        )  # fmt: skip
        self.step = 0
        chance = np.random.default_rng(0)
        env, slot = (STEPS, ENVS), (STEPS, ENVS, SLOTS)
        # A slot moves on each dozen steps: what a seed lives through in an episode.
        stage = (np.arange(STEPS)[:, None, None] + chance.integers(0, 60, slot[1:])) // 12 % len(STAGES)
        self.columns: dict[str, Any] = {
            "reward": chance.normal(size=env).astype("f4"), "metric": chance.random(env).astype("f4"),
            "rent": chance.random(env).astype("f4"), "actions": chance.integers(0, 3, (*env, 3)),
            "terminated": chance.random(env) < 0.01, "truncated": chance.random(env) < 0.01,
            "episode_return": chance.normal(size=env), "episode_length": np.ones(env, "i4"),
            "slot_stage": (1 + stage).astype("u1"), "slot_blueprint": np.where(stage, 1, -1).astype("i2"),
            "slot_alpha": chance.random(slot).astype("f4"), "slot_age": np.ones(slot, "i4"),
            "slot_grad": chance.random(slot).astype("f4"),
        }  # fmt: skip
        self.columns = {name: torch.from_numpy(values) for name, values in self.columns.items()}

    def rollout(self, *, copy: bool = True) -> None:
        """One call."""
        now = time.time()
        self.run.rollout(
            first_step=self.step + 1, steps=STEPS, envs=ENVS, at_first=now - 1.0, at_last=now, copy=copy,
            **self.columns,
        )  # fmt: skip
        self.step += STEPS

    def steps(self) -> None:
        """Calls for each step, as a trainer makes them that has its words to look up."""
        before = None
        for row in range(STEPS):
            now = {name: values[row] for name, values in self.columns.items()}
            self._step(now, before)
            before = now["slot_stage"].tolist()

    def _step(self, now: dict[str, Any], before: list[list[int]] | None) -> None:
        self.step += 1
        run, envs = self.run, list(range(ENVS))
        ops, slots, blueprints = (now["actions"][:, head].tolist() for head in range(3))
        run.actions(
            env_id=envs, op=[OPS[code] for code in ops], slot=[NAMES[code] for code in slots],
            blueprint=[BLUEPRINTS[code] for code in blueprints], step=self.step,
        )  # fmt: skip
        numbers = {name: now[name].numpy() for name in ("reward", "metric", "rent")}
        run.envs(env_id=envs, step=self.step, **numbers)
        stage = now["slot_stage"].tolist()
        for env, row in enumerate(stage if before else ()):
            for slot, code in enumerate(row):
                if code != before[env][slot]:  # type: ignore[index] # there is one where it is looped over
                    run.seed_stage_changed(
                        env_id=env, slot=NAMES[slot], seed_id=f"{env}-{NAMES[slot]}-1",
                        before=BY_CODE[before[env][slot]], after=BY_CODE[code], alpha=0.5, age=12,  # type: ignore[index]
                    )  # fmt: skip
        kinds = now["slot_blueprint"].flatten().tolist()
        run.slots(
            env_id=[env for env in envs for _ in NAMES], slot=list(NAMES) * ENVS,
            stage=[BY_CODE[code].value for row in stage for code in row],
            blueprint=[None if code < 0 else BLUEPRINTS[code] for code in kinds], step=self.step,
            **{name: now[f"slot_{name}"].flatten().numpy() for name in ("alpha", "age", "grad")},
        )  # fmt: skip
        ended = (now["terminated"] | now["truncated"]).nonzero().flatten()
        if len(ended):
            run.episodes(
                env_id=ended.numpy(), episode_return=now["episode_return"][ended].numpy(),
                length=now["episode_length"][ended].numpy(), metric=now["metric"][ended].numpy(),
            )  # fmt: skip


def measure(rounds: int, folder: Path, cores: Cores, goals: Goals) -> None:
    """Measure and print so many rounds."""
    try:
        import torch
    except ImportError:
        emit(f"rollouts: {MISSING}")
        return
    torch.set_num_threads(1)
    place = folder / "rollouts"
    place.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        own = {"OVERWATCH_SPOOL_DIR": str(place / "spool"), "XDG_RUNTIME_DIR": str(place)}
        stack.enter_context(patch.dict(os.environ, own))
        trainer = Trainer(stack.enter_context(collector("healthy", cores)))
        stack.callback(trainer.run.close, 30.0)
        ways: dict[str, Callable[[], None]] = {
            "rollout": trainer.rollout,
            "steps": trainer.steps,
            "rollout, A/A": trainer.rollout,
            "rollout, lent": functools.partial(trainer.rollout, copy=False),
        }
        took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way, report in ways.items():
                found = _timed(report)
                if number:  # the first round warms up
                    took[way].append(found)
                trainer.run.flush(30.0)
    _print(took, goals)


def _timed(report: Callable[[], None]) -> tuple[float, float]:
    """CPU milliseconds of this thread, and of the whole process until all is written."""
    gc.collect()
    process, thread = time.process_time(), time.thread_time()
    report()
    spent = time.thread_time() - thread
    time.sleep(PAUSE_S)
    return spent * 1e3, (time.process_time() - process) * 1e3


def _print(took: dict[str, list[tuple[float, float]]], goals: Goals) -> None:
    emit(f"{ENVS} envs, {STEPS} steps, {SLOTS} slots; CPU ms of a rollout: median (least to most)")
    for way, found in took.items():
        thread, process = ([one[place] for one in found] for place in range(2))
        of_thread = f"{statistics.median(thread):.3f} ({min(thread):.3f} to {max(thread):.3f})"
        of_process = f"{statistics.median(process):.2f} ({min(process):.2f} to {max(process):.2f})"
        emit(f"{way:16} training thread {of_thread:32} whole process {of_process}")
    pairs = zip(took["rollout"], took["steps"], strict=True)
    goals.least(
        "a rollout, times cheaper than calls for each step",
        statistics.median(b[0] / a[0] for a, b in pairs),
        20,
    )
