"""Every anomaly factor fires when it should, and keeps quiet when it should not."""

import numpy as np
import pytest

from overwatch.catalog import Stage
from overwatch.diagnose.anomaly import FACTORS, Anomalies, score_envs
from overwatch.diagnose.factor import AnomalyLimits, Weights
from overwatch.diagnose.fleet import fleet_of
from overwatch.events import Event, GateEvaluated, SeedStageChanged
from tests import fakes
from tests.fakes import SECOND, START_NS

IDS = list(range(8))
NORMAL: list[Event] = [fakes.envs(START_NS, IDS, index=1, step_time=[0.01 + 0.001 * i for i in IDS])]
STEPPING: list[Event] = [
    fakes.envs(START_NS + i * SECOND, IDS, index=2 + i, step_time=[0.01] * 8) for i in range(1, 6)
]
LATER: list[Event] = [
    *STEPPING,
    *[fakes.envs(START_NS + i * SECOND, IDS[1:], index=2 + i, step_time=[0.01] * 7) for i in range(6, 18)],
]
"""Env 0 steps no more."""
SLOW = fakes.envs(START_NS, IDS, index=1, step_time=[0.1, *[0.01 + 0.0001 * i for i in IDS[1:]]])
LANES = ["gpu1", *["gpu0"] * 7]


def _cull(at: int, env_id: int) -> SeedStageChanged:
    return SeedStageChanged(
        at=at, env_id=env_id, slot=f"s{at % 97}", seed_id="s", before=Stage.TRAINING, after=Stage.PRUNED
    )


def _gate(at: int, env_id: int, *, passed: bool = False, **reported: object) -> GateEvaluated:
    return GateEvaluated(
        at=at, env_id=env_id, slot="s", seed_id=f"s{at}", gate="G2", passed=passed,
        **reported,  # type: ignore[arg-type]  # the test names real fields
    )  # fmt: skip


def _episodes(*returns_of_0: float) -> list[Event]:
    """Ten usual episodes of eight envs, then episodes in which env 0 earns these."""
    usual = [[1.0 + 0.01 * ((7 * i + 3 * episode) % 11) for i in IDS] for episode in range(20)]
    reported = [fakes.ended(START_NS + i, IDS, row) for i, row in enumerate(usual[:10])]
    for i, value in enumerate(returns_of_0):
        reported.append(fakes.ended(START_NS + 100 + i, IDS, [value, *usual[10 + i][1:]]))
    return list(reported)


def _rents(rent_of_0: float, gain_of_0: float) -> list[Event]:
    """Sixty steps in which every env but env 0 gains, at rents around 0.1."""
    return [
        fakes.started(START_NS),
        *[
            fakes.envs(
                START_NS + step * SECOND,
                IDS,
                index=step,
                rent=[rent_of_0, *[0.1 + 0.002 * i for i in IDS[1:]]],
                metric=[0.5 + gain_of_0 * step, *[0.5 + 0.005 * step] * 7],
            )
            for step in range(1, 62)
        ],
    ]


def _acts(steps: int, other: tuple[str, ...]) -> list[Event]:
    """Steps in which env 0 waits and the others do each of these in turn."""
    return [
        *NORMAL,
        *[
            fakes.acted(START_NS + step, IDS, ["wait", *[other[(step + i) % len(other)] for i in IDS[1:]]])
            for step in range(steps)
        ],
    ]


FIRES: dict[str, tuple[list[Event], str, str]] = {
    "crashed": ([*NORMAL, fakes.crashed(START_NS + 1, 0)], "crashed", "crashed at step 12: boom"),
    "non_finite": (
        [*NORMAL, fakes.non_finite(START_NS + 1, "reward", (0,))],
        "diverging",
        "non-finite: nan in reward",
    ),
    "slow_step": ([SLOW], "stalled", "step 9.6× the median"),
    "slow_lane": (
        [fakes.envs(START_NS, IDS, index=1, step_time=[0.02, *[0.01] * 7], lane=LANES)],  # type: ignore[list-item]  # lanes are words
        "ok",
        "slow with their lane",
    ),
    "silent": ([*NORMAL, *LATER], "stalled", "silent for 12s while others step"),
    "reward_collapse": (_episodes(*[-3.0] * 5), "degraded", "return 293.8 mad low"),
    "rent_without_gain": (_rents(0.52, 0.0), "degraded", "rent 0.52, acc +0.00 in 50 steps"),
    "cull_rate": (
        [*NORMAL, *[_cull(START_NS + i, 0) for i in range(4)]],
        "degraded",
        "4 culls in 60s",
    ),
    "gate_failures": (
        [*NORMAL, *[_gate(START_NS + i, 0) for i in range(4)]],
        "degraded",
        "4 fails at G2",
    ),
    "action_collapse": (_acts(60, ("wait", "grow", "prune")), "degraded", "wait 60× in a row"),
}

QUIET: dict[str, list[Event]] = {
    "crashed": [*NORMAL, fakes.crashed(START_NS + 1, 0), fakes.envs(START_NS + 2, [0], reward=[0.0])],
    "non_finite": [*NORMAL, fakes.non_finite(START_NS + 1, "overwatch.policy.loss")],
    "slow_step": [
        fakes.envs(START_NS, IDS[:3], index=1, step_time=[0.5, 0.01, 0.01])
    ],  # of three none is usual
    "slow_lane": [fakes.envs(START_NS, IDS, index=1, step_time=[0.011, *[0.01] * 7], lane=LANES)],  # type: ignore[list-item]  # lanes are words
    "silent": [*NORMAL, *LATER[:9]],
    "reward_collapse": _episodes(-3.0, -3.0, 1.0, 1.0, 1.0),
    "rent_without_gain": _rents(0.52, 0.01),
    "cull_rate": [*NORMAL, *[_cull(START_NS + i, env_id) for i in range(4) for env_id in IDS]],
    "gate_failures": [*NORMAL, *[_gate(START_NS + i, 0, passed=True) for i in range(9)]],
    "action_collapse": _acts(200, ("wait",)),
}


def _scored(events: list[Event], limits: AnomalyLimits | None = None) -> Anomalies:
    return score_envs(fleet_of(fakes.folded(events)), limits or AnomalyLimits())


def test_every_factor_has_its_examples() -> None:
    """A factor without examples that fire it and do not, or without a weight, cannot be added."""
    names = {factor.__name__ for factor in FACTORS}

    assert names == set(FIRES) == set(QUIET) == set(Weights.__struct_fields__)


@pytest.mark.parametrize("name", FIRES)
def test_the_factor_fires_for_its_env_alone_and_states_why(name: str) -> None:
    """Env 0 is the offender, with a reason in words and numbers; nobody else is."""
    events, status, reason = FIRES[name]
    anomalies = _scored(events)

    assert np.flatnonzero(anomalies.scores > 0).tolist() == [0]
    assert anomalies.status(0) == status
    assert anomalies.reasons(0) == (reason,)


BESIDE_ITS_NAME: dict[str, str] = {
    "crashed": "crashed | at step 12: boom",
    "non_finite": "non-finite | nan in reward",
    "slow_step": "slow step | 9.6× the median",
    "slow_lane": "slow lane | all of its lane is slow",
    "silent": "silent | for 12s while others step",
    "reward_collapse": "reward collapse | return 293.8 mad low",
    "rent_without_gain": "rent, no gain | rent 0.52, acc +0.00 in 50 steps",
    "cull_rate": "cull rate | 4 in 60s (usual 0.0)",
    "gate_failures": "gate fails | 4 at G2",
    "action_collapse": "action collapse | wait 60× in a row (usual 1.0)",
}


@pytest.mark.parametrize("name", FIRES)
def test_beside_its_name_the_factor_has_room_for_more(name: str) -> None:
    """The drawer shows name and text side by side: no word twice, more numbers than a row has."""
    (factor,) = _scored(FIRES[name][0]).found(0)

    assert f"{factor.name} | {factor.reported(0)}" == BESIDE_ITS_NAME[name]


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        ({"message": "gradient ratio 0.04 < 0.10", "score": 0.04}, "4 at G2: gradient ratio 0.04 < 0.10"),
        ({"checks_failed": ("gradient_ratio",), "score": 0.041}, "4 at G2: gradient ratio 0.041"),
        ({"checks_failed": ("min_age", "alpha")}, "4 at G2: min age"),
        ({"score": 0.041}, "4 at G2: 0.041"),
    ],
    ids=["its own words", "check and score", "checks alone", "score alone"],
)
def test_failed_gates_show_what_was_measured(reported: dict[str, object], words: str) -> None:
    """As far as the newest failed gate states it; the board's short reason stays the same."""
    (factor,) = _scored([*NORMAL, *[_gate(START_NS + i, 0, **reported) for i in range(4)]]).found(0)

    assert (factor.reported(0), factor.say(0)) == (words, "4 fails at G2")


@pytest.mark.parametrize("name", QUIET)
def test_the_factor_keeps_quiet(name: str) -> None:
    """What is like the fleet, or over again, or not about one env, weighs nothing."""
    assert not _scored(QUIET[name]).scores.any()


@pytest.mark.parametrize("name", FIRES)
def test_a_factor_can_be_weighed_and_turned_off(name: str) -> None:
    """Half the weight is half the score; a weight of 0 is silence."""
    events = FIRES[name][0]
    full = _scored(events).scores[0]

    assert _scored(events, AnomalyLimits(weights=Weights(**{name: 0.5}))).scores[0] == full / 2
    assert not _scored(events, AnomalyLimits(weights=Weights(**{name: 0.0}))).scores.any()


def test_limits_that_make_no_sense_are_refused() -> None:
    """The message names the value."""
    with pytest.raises(ValueError, match="weight silent is -1"):
        Weights(silent=-1)
    with pytest.raises(ValueError, match=r"crowd is 2\.0"):
        AnomalyLimits(crowd=2.0)
    with pytest.raises(ValueError, match="slow_step is 0"):
        AnomalyLimits(slow_step=0)


def test_equal_step_times_weigh_nothing() -> None:
    """Envs stepped as one batch share one time: the factor abstains, however slow it is."""
    events: list[Event] = [fakes.envs(START_NS, IDS, index=1, step_time=[5.0] * 8)]

    assert _scored(events).offenders().size == 0


def test_an_env_that_was_always_worse_has_not_collapsed() -> None:
    """Its own earlier episodes are as low: that is its level, not a fall."""
    events: list[Event] = [
        fakes.ended(START_NS + i, IDS, [-9.0, *[1.0 + 0.01 * ((7 * e + i) % 11) for e in IDS[1:]]])
        for i in range(20)
    ]

    assert _scored(events).offenders().size == 0


def test_a_non_finite_value_is_held_for_a_minute_only() -> None:
    """What was long ago and has not come back no longer colours the env."""
    events: list[Event] = [
        *NORMAL,
        fakes.non_finite(START_NS + 1, "reward", (0,)),
        fakes.envs(START_NS + 62 * SECOND, IDS, index=2, reward=[0.0] * 8),
    ]

    assert _scored(events).offenders().size == 0


def test_culls_of_the_last_minute_only_are_counted() -> None:
    """A minute and a bucket later the env is like the others."""
    events = [*FIRES["cull_rate"][0], fakes.envs(START_NS + 66 * SECOND, IDS, reward=[0.0] * 8)]

    assert _scored(events).offenders().size == 0


def test_a_new_episode_is_no_lost_gain() -> None:
    """The metric of the last episode is no measure of this one: the factor waits for fifty steps of it."""
    events = [
        *_rents(0.52, 0.0)[:40],
        fakes.ended(START_NS + 40 * SECOND, [0], [1.0]),
        *_rents(0.52, 0.0)[40:],
    ]

    assert _scored(events).offenders().size == 0


def test_a_hard_fault_outweighs_every_graded_one() -> None:
    """A crash ranks above an env that is slow and silent at once."""
    anomalies = _scored([SLOW, *LATER, fakes.crashed(START_NS + 17 * SECOND, 3)])

    assert int(np.argmax(anomalies.scores)) == 3
    assert anomalies.scores[0] > 0
