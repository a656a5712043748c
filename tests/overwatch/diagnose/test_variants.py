"""Faults as the corpus does not have them: other sizes, paces, beginnings and magnitudes.

Rules follow from definitions: what is the same trouble is found in any run, and what is none is not.
"""

from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from overwatch.simulate import FAULTS, Settings
from overwatch.simulate.faults import Conditions, Fault, Planned, ramp
from tests.calibration.corpus import Case, Class, Result
from tests.calibration.corpus import run as judged


class Variant(Case, frozen=True, kw_only=True):
    """A labelled run of any size."""

    gpus: int = 2
    envs: int = 8
    also: tuple[str, ...] = ()
    """Faults that begin with it."""

    @property
    def settings(self) -> Settings:
        """As given, not as in the corpus."""
        names = (self.name, *self.also) if self.name else ()
        return Settings(
            gpus=self.gpus, envs=self.envs, slots=self.slots, rate_hz=self.rate_hz, seconds=self.seconds,
            seed=self.seed, faults=tuple(Planned(name=name, at_s=self.at_s) for name in names),
        )  # fmt: skip


def _leak(over_s: float) -> Fault:
    return lambda now, since_s: replace(now, leak=ramp(since_s, over_s))


def _drag(times: float) -> Fault:
    return lambda now, _since_s: replace(now, drag=times)


def _heat(share: float) -> Fault:
    return lambda now, since_s: replace(now, heat=share * ramp(since_s, 3))


def _rows(**times: float) -> Fault:
    return lambda now, _since_s: replace(now, times={**now.times, **times})


def _warm_up(now: Conditions, since_s: float) -> Conditions:
    """A cache that fills within three seconds and stays: no leak."""
    return replace(now, leak=0.2 * ramp(since_s, 3))


def _hiccup(now: Conditions, since_s: float) -> Conditions:
    """The last lane is twice as slow for one second in thirty: a checkpoint, a neighbour."""
    return replace(now, drag=2.0 if since_s % 30 < 1 else 1.0)


OTHERS: Mapping[str, Fault] = {
    "oom-climb": _leak(60), "memory-creep": _leak(280), "straggler": _drag(1.6),
    "thermal-throttle": _heat(0.6), "kl-high": _rows(kl_divergence=8.0),
    "entropy-collapse": _rows(entropy=0.15),
    "slowdown": _warm_up, "kl-spike": _hiccup,
}  # fmt: skip
"""Other magnitudes and paces under the same names, or harmless things in their place."""

FOUND = [
    Variant(
        name="oom-climb", kind=Class.LEAK, expects=("oom-forecast",), gpus=5, envs=2, at_s=93, seconds=115
    ),
    Variant(name="memory-creep", kind=Class.DRIFT, expects=("oom-forecast",), envs=1, at_s=70, seconds=125),
    Variant(name="straggler", kind=Class.MACHINE, expects=("straggler",), gpus=7, envs=4, rate_hz=4, at_s=31),
    Variant(name="thermal-throttle", kind=Class.MACHINE, expects=("thermal-throttle",), gpus=1, rate_hz=2),
    Variant(name="io-starvation", kind=Class.MACHINE, expects=("io-starvation",), gpus=8, envs=1, at_s=63),
    Variant(name="env-nan", kind=Class.FACT, expects=("env-non-finite", "non-finite"), envs=300, seconds=55),
    Variant(name="env-crash", kind=Class.FACT, expects=("env-crashed",), gpus=1, envs=2, rate_hz=1),
    Variant(name="env-slow", kind=Class.MACHINE, expects=("env-stalled",), gpus=3, envs=21, seconds=65),
    Variant(name="env-reward", kind=Class.FLEET, expects=("env:degraded",), envs=100),
    Variant(name="env-actions", kind=Class.FLEET, expects=("env:degraded",), envs=40, rate_hz=50, seconds=70),
    Variant(name="kl-high", kind=Class.POLICY, expects=("policy-kl-divergence",), envs=1, at_s=27, slots=0),
    Variant(name="entropy-collapse", kind=Class.POLICY, expects=("policy-entropy",), gpus=6, at_s=70),
    Variant(
        name="crash-storm", kind=Class.FACT, expects=("env-crashed",), gpus=4, also=("thermal-throttle",)
    ),
    Variant(
        name="cull-storm", kind=Class.FLEET, expects=("cull-storm",), gpus=3, envs=16, slots=2, seconds=100
    ),
]


QUIET = [
    Variant(name="", kind=Class.HARMLESS, gpus=1, envs=1, slots=0, rate_hz=1, seconds=120),
    Variant(name="", kind=Class.HARMLESS, gpus=16, envs=2, rate_hz=3, seconds=90),
    Variant(name="", kind=Class.HARMLESS, envs=256, slots=1, seconds=70),
    Variant(name="slowdown", kind=Class.HARMLESS, at_s=45, seconds=110),
    Variant(name="kl-spike", kind=Class.HARMLESS, gpus=3, at_s=30, seconds=130),
]
"""The last two: a cache that fills, and a lane that hesitates for a second now and then."""


def _run(case: Case, monkeypatch: pytest.MonkeyPatch) -> Result:
    for name, fault in OTHERS.items():
        monkeypatch.setitem(FAULTS, name, fault)
    with np.errstate(all="ignore"):
        return judged(case)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.label)
def test_a_fault_of_another_size_is_found_in_time(case: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the bound of its class, and nothing was reported before."""
    result = _run(case, monkeypatch)

    assert result.in_time, result
    assert result.before == ()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", QUIET, ids=lambda case: f"{case.label}-{case.gpus}x{case.envs}")
def test_what_is_no_fault_is_not_reported(case: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning and no critical finding: fleets of other sizes, and what only looks like trouble."""
    assert _run(case, monkeypatch).before == ()
