"""Kinds of runs as they were reported or measured, by two seeds each: only the broken ones are named.

A run is a table of columns, an update a row; a fault changes columns from some update on.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from overwatch.catalog.presets import preset_for
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.problem import SEVERITIES
from overwatch.events import CurriculumChanged, Event
from overwatch.state import apply
from tests import fakes
from tests.fakes import SECOND, START_NS

pytestmark = pytest.mark.slow
Array = npt.NDArray[np.float64]
Columns = dict[str, Array]
Dice = np.random.Generator
SEEDS: Final = (1, 2)
STEPS: Final = ("kl_divergence", "clip_fraction")


def learning(dice: Dice, n: int = 300, returns: Array | None = None) -> Columns:
    """A healthy PPO along a curve of returns."""
    t = np.arange(n)
    return {
        "return": 20 + 200 * (1 - np.exp(-t / 60)) + dice.normal(0, 8, n) if returns is None else returns,
        "kl_divergence": abs(dice.normal(0.007, 0.0015, n)),
        "clip_fraction": abs(dice.normal(0.1, 0.02, n)),
        "entropy": (0.95 - 0.5 * t / max(n, 300) + dice.normal(0, 0.01, n)).clip(0.02, 1),
        "explained_variance": 0.9 * (1 - np.exp(-t / 25)) + dice.normal(0, 0.03, n),
        "value_loss": (1 + 20 * np.exp(-t / 20)) * dice.lognormal(0, 0.15, n),
        "grad_norm": 0.6 * dice.lognormal(0, 0.15, n),
        "learning_rate": np.full(n, 3e-4),
    }  # fmt: skip


def steady(noise: Callable[[Dice, int], Array]) -> Callable[[Dice], Columns]:
    """A policy that changes no more, for 1,000 updates, with noise of a kind."""

    def columns(dice: Dice) -> Columns:
        draw = lambda: noise(dice, 1000)  # noqa: E731 seven columns of one noise
        return {
            "return": 200 + 9 * draw(), "kl_divergence": 0.007 * np.exp(0.2 * draw().clip(-6, 4)),
            "clip_fraction": (0.1 + 0.02 * draw()).clip(0, 0.2),
            "entropy": (0.6 + 0.01 * draw()).clip(0.5, 0.7),
            "explained_variance": (0.8 + 0.03 * draw()).clip(0.5, 1),
            "value_loss": np.exp(0.15 * draw().clip(-6, 4)), "grad_norm": np.exp(0.15 * draw().clip(-6, 4)),
            "learning_rate": np.full(1000, 3e-4),
        }  # fmt: skip

    return columns


def echoes(dice: Dice, n: int) -> Array:
    """Noise of size 1 of which each value is 0.9 of the one before."""
    values = dice.normal(0, 1, n)
    for place in range(1, n):
        values[place] = 0.9 * values[place - 1] + 0.19**0.5 * values[place]
    return values


def _restarts(dice: Dice) -> Columns:
    """A schedule with a warm restart each 40 updates, which is not sent."""
    rate = 0.05 + 0.475 * (1 + np.cos(np.pi * (np.arange(400) % 40) / 40))
    run = learning(dice, 400)
    del run["learning_rate"]
    return run | {
        "kl_divergence": 0.013 * rate + abs(dice.normal(0, 0.001, 400)),
        "clip_fraction": 0.2 * rate,
    }


def _levels(dice: Dice) -> Columns:
    """A curriculum, each change of which is announced."""
    p = np.arange(480) % 120
    return learning(dice, 480, 20 + 180 * (1 - np.exp(-p / 25)) + dice.normal(0, 8, 480)) | {
        "explained_variance": 0.9 * (1 - 0.8 * np.exp(-p / 15)) + dice.normal(0, 0.03, 480),
        "!curriculum": np.where(p == 0, np.arange(480) // 120, 0.0),
    }


def _sudden(dice: Dice) -> Columns:
    """Returns at their floor, until the policy comes upon the goal."""
    begin, t = 200 + int(dice.integers(0, 100)), np.arange(600)
    returns = np.where(t < begin, -200.0, -200 + 80 * (1 - np.exp((begin - t) / 60)) + dice.normal(0, 6, 600))
    return learning(dice, 600, returns)


def _ceiling(dice: Dice) -> Columns:
    """A task that is solved, whose critic has nothing left to explain."""
    t = np.arange(400)
    dips = np.where(dice.random(400) < 0.8, 500.0, 500 - abs(dice.normal(0, 40, 400)))
    returns = np.where(t < 100, np.minimum(500, 20 + 6 * t + dice.normal(0, 20, 400)), dips)
    explained = 0.93 - 0.5 * ((t - 100) / 120).clip(0, 1) + dice.normal(0, 0.05, 400)
    return learning(dice, 400, returns) | {"explained_variance": explained}


HEALTHY: Final[Mapping[str, Callable[[Dice], Columns]]] = {
    "Gaussian": steady(lambda dice, n: dice.normal(0, 1, n)),
    "echoes of 0.9": steady(echoes),
    "heavy tails": steady(lambda dice, n: dice.standard_t(3, n)),
    "learning": lambda dice: learning(dice, 600),
    "noisy returns": lambda dice: learning(
        dice, 600, -1200 + 800 * (1 - np.exp(-np.arange(600) / 150)) + dice.normal(0, 220, 600)
    ),
    "warm restarts": _restarts,
    "curriculum": _levels,
    "sudden success": _sudden,
    "ceiling": _ceiling,
    "KL at its zoo's": lambda dice: learning(dice) | {"kl_divergence": abs(dice.normal(0.022, 0.004, 300))},
    "clipping grows as it learns": lambda dice: learning(dice, 470, 400 * (np.arange(470) / 470) ** 0.5)
    | {"clip_fraction": 0.069 + 0.128 * np.arange(470) / 470 + abs(dice.normal(0, 0.02, 470))},
    "updates without a step": lambda dice: {
        name: np.where(np.arange(300) % 7 == 3, 0.0, column) if name in STEPS else column
        for name, column in learning(dice).items()
    },
    "rate to 0 at the planned end": lambda dice: {
        name: column * (1 - np.arange(300) / 300) ** (2 if name == "kl_divergence" else 1)
        if name in (*STEPS, "learning_rate") else column
        for name, column in learning(dice).items()
    },
}  # fmt: skip


class Fault(NamedTuple):
    """What changes from some update on, and what must be found of it."""

    changes: Callable[[Dice, Columns, Array], Columns]
    """Columns of the time after it began; the array counts its updates from 0."""
    codes: tuple[str, ...]
    """Parts of codes or subjects, of which the finding has one."""
    within: int = 20
    severity: str = "warning"


def _dead(dice: Dice, run: Columns, t: Array) -> Columns:
    trace = lambda size: size * dice.lognormal(0, 0.3, t.size)  # noqa: E731 three columns of one kind
    return {
        "return": 9.4 + abs(dice.normal(0, 0.4, t.size)), "kl_divergence": trace(2e-7),
        "clip_fraction": 0 * t, "grad_norm": trace(1e-6), "entropy": trace(1e-5),
    }  # fmt: skip


BROKEN: Final[Mapping[str, Fault]] = {
    "a dead policy": Fault(_dead, ("policy-frozen", "policy-collapse"), severity="critical"),
    "a sudden collapse": Fault(
        lambda dice, _, t: {
            "return": dice.normal(15, 3, t.size), "kl_divergence": abs(dice.normal(0.08, 0.03, t.size)),
            "entropy": 0 * t + 0.05,
        },
        ("policy-collapse",), 8, "critical",
    ),
    "returns that fall slowly": Fault(
        lambda dice, run, t: {"return": run["return"][0] - 0.8 * t + dice.normal(0, 10, t.size)},
        ("reward-collapse",), 110,
    ),
    "returns that swing as they fall": Fault(
        lambda dice, _, t: {
            "return": 90 + 60 * np.exp(-t / 4) + 9 * np.sin(t / 3) + dice.normal(0, 6, t.size)
        },
        ("reward-collapse", "policy-collapse"),
    ),
    "evaluations that fall": Fault(
        lambda dice, _, t: {"eval_return": (180 - 1.5 * t).clip(90) + dice.normal(0, 8, t.size)},
        ("eval_return",), 70,
    ),
    "a critic that forgot, while returns rise": Fault(
        lambda dice, run, t: {
            "explained_variance": dice.normal(0.12, 0.04, t.size), "value_loss": 10 * run["value_loss"],
        },
        ("critic", "explained_variance", "value_loss"),
    ),
    "a learning rate that ended early": Fault(
        lambda dice, _, t: {
            "learning_rate": 0 * t + 1e-10, "kl_divergence": 1e-8 * dice.lognormal(0, 0.3, t.size),
            "clip_fraction": 0 * t,
        },
        ("learning-rate-zero",),
    ),
    "samples that do not differ": Fault(
        lambda dice, _, t: {"reward_std": abs(dice.normal(0.02, 0.004, t.size))}, ("reward_std",), 40
    ),
    "advantages that explode": Fault(
        lambda dice, _, t: {"advantage_std": abs(dice.normal(45, 4, t.size))}, ("advantage_std",)
    ),
    "steps ten times too large": Fault(
        lambda dice, _, t: {
            "return": dice.normal(30, 6, t.size), "kl_divergence": abs(dice.normal(0.06, 0.02, t.size)),
            "clip_fraction": abs(dice.normal(0.42, 0.04, t.size)),
        },
        ("steps-too-large", "policy-collapse"), severity="critical",
    ),
    "gradients that explode": Fault(
        lambda _, run, t: {
            "grad_norm": 0.6 * 1.25 ** t.clip(0, 60), "return": (run["return"] - 6 * t).clip(15),
        },
        ("grad_norm", "policy-collapse"),
    ),
    "an impossible KL": Fault(
        lambda dice, _, t: {"kl_divergence": dice.normal(-0.02, 0.002, t.size)}, ("kl_divergence",)
    ),
    "numbers identical to the bit": Fault(
        lambda _, run, t: {name: np.full(t.size, column[0]) for name, column in run.items()},
        ("policy-frozen",), 30,
    ),
    "a spread of actions that explodes": Fault(
        lambda dice, _, t: {
            "return": dice.normal(-1200, 80, t.size), "action_std": np.exp(t / 40),
            "entropy_nats": 1.4 + t / 40,
        },
        ("entropy-explosion", "policy-collapse", "reward-collapse"), 60,
    ),
}  # fmt: skip
BEGINS: Final = 120
USUAL: Final = {
    "eval_return": 180.0, "reward_std": 1.8, "advantage_std": 1.0, "action_std": 1.0, "entropy_nats": 1.4,
}  # fmt: skip
"""Of columns that only a fault has."""


def _alarms(run: Columns, updates: int | None = None) -> list[tuple[int, str, str, str]]:
    """Update, severity, code and subject of each finding that opened or got worse."""
    planned = {} if updates is None else {"updates": updates}
    state = fakes.folded([fakes.started(START_NS, algo="ppo", preset=preset_for("ppo"), **planned)])
    levels, known, opened = run.pop("!curriculum", None), Assessment(), []
    worst: dict[str, str] = {}
    for place in range(len(run["return"])):
        at = START_NS + (place + 1) * 2 * SECOND
        row = {name: float(column[place]) for name, column in run.items() if np.isfinite(column[place])}
        events: list[Event] = [fakes.policy(at, index=place + 1, **row)]
        if levels is not None and levels[place]:
            events.insert(0, CurriculumChanged(at=at, name="level", after=str(levels[place])))
        for record in fakes.records(events, first_seq=2 + 2 * place):
            apply(state, record, at)
        known = assess(state, known, at).assessment
        now = {key: item.problem for key, item in known.findings.items() if item.cleared_at is None}
        for key, problem in now.items():
            if SEVERITIES.index(problem.severity) < SEVERITIES.index(worst.get(key, "info")):
                opened.append((place, problem.severity, problem.code, problem.subject or ""))
        worst = {key: problem.severity for key, problem in now.items()}
    return opened


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_kinds_raise_no_alarm(name: str, seed: int) -> None:
    """Neither a warning nor worse, from the first update to the last."""
    assert _alarms(HEALTHY[name](np.random.default_rng(seed)), 300 if "planned" in name else None) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", BROKEN)
def test_broken_kinds_are_named_in_time(name: str, seed: int) -> None:
    """By the cause or the signal that is off, at least as bad as it is; and nothing before it began."""
    fault, dice = BROKEN[name], np.random.default_rng(seed)
    run, t = learning(dice), np.arange(300 - BEGINS, dtype=float)
    rest = {name: column[BEGINS:] for name, column in run.items()}
    for column, values in fault.changes(dice, rest, t).items():
        before = run.get(column)
        if before is None:
            before = USUAL[column] * dice.lognormal(0, 0.05, 300)
        run[column] = np.concatenate([before[:BEGINS], values])
    opened = _alarms(run)

    assert [alarm for alarm in opened if alarm[0] < BEGINS] == []
    assert any(
        place - BEGINS <= fault.within
        and SEVERITIES.index(severity) <= SEVERITIES.index(fault.severity)
        and any(code in f"{found}:{subject}" for code in fault.codes)
        for place, severity, found, subject in opened
    ), opened
