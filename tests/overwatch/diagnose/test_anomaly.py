"""Every anomaly factor fires when it should, and keeps quiet when it should not."""

import numpy as np
import pytest

from overwatch.diagnose.anomaly import FACTORS, Anomalies, AnomalyLimits, score_envs
from overwatch.diagnose.fleet import fleet_of
from overwatch.events import Event
from tests import fakes
from tests.fakes import SECOND, START_NS

IDS = list(range(8))
NORMAL: list[Event] = [fakes.envs(START_NS, IDS, index=1, step_time=[0.01 + 0.001 * i for i in IDS])]
LATER = fakes.envs(START_NS + 12 * SECOND, IDS[1:], index=2, step_time=[0.01] * 7)
SLOW = fakes.envs(START_NS, IDS, index=1, step_time=[0.1, *[0.01 + 0.0001 * i for i in IDS[1:]]])

FIRES: dict[str, tuple[list[Event], str, str]] = {
    "crashed": ([*NORMAL, fakes.crashed(START_NS + 1, 0)], "crashed", "crashed at step 12: boom"),
    "non_finite": (
        [*NORMAL, fakes.non_finite(START_NS + 1, "reward", (0,))],
        "diverging",
        "non-finite: nan in reward",
    ),
    "slow_step": ([SLOW], "stalled", "step 9.6× the median"),
    "silent": ([*NORMAL, LATER], "stalled", "silent for 12s while others step"),
}


def _scored(events: list[Event]) -> Anomalies:
    return score_envs(fleet_of(fakes.folded(events)), AnomalyLimits())


def test_every_factor_has_an_example() -> None:
    """A factor without an example that fires it cannot be added."""
    assert {factor.__name__ for factor in FACTORS} == set(FIRES)


@pytest.mark.parametrize("name", FIRES)
def test_the_factor_fires_for_its_env_alone_and_says_why(name: str) -> None:
    """Env 0 is the offender, with a reason in words and numbers; nobody else is."""
    events, status, reason = FIRES[name]
    anomalies = _scored(events)

    assert anomalies.offenders().tolist() == [0]
    assert anomalies.status(0) == status
    assert anomalies.reasons(0) == (reason,)


def test_a_normal_fleet_has_no_offender() -> None:
    """Different step times within reason are no anomaly."""
    assert _scored(NORMAL).offenders().size == 0


def test_equal_step_times_say_nothing() -> None:
    """Envs stepped as one batch share one time: the factor abstains, however slow it is."""
    events: list[Event] = [fakes.envs(START_NS, IDS, index=1, step_time=[5.0] * 8)]

    assert _scored(events).offenders().size == 0


def test_a_fleet_that_is_silent_together_has_no_silent_env() -> None:
    """While the policy learns, nobody steps: that is no env's fault."""
    events: list[Event] = [*NORMAL, fakes.policy(START_NS + 60 * SECOND, kl_divergence=0.01)]

    assert _scored(events).offenders().size == 0


def test_a_non_finite_value_is_held_for_a_minute_only() -> None:
    """What was long ago and has not come back no longer colours the env."""
    events: list[Event] = [
        *NORMAL,
        fakes.non_finite(START_NS + 1, "reward", (0,)),
        fakes.envs(START_NS + 62 * SECOND, IDS, index=2, reward=[0.0] * 8),
    ]

    assert _scored(events).offenders().size == 0


def test_a_hard_fault_outweighs_every_graded_one() -> None:
    """A crash ranks above an env that is slow and silent at once."""
    anomalies = _scored([SLOW, LATER, fakes.crashed(START_NS + 12 * SECOND, 3)])

    assert int(np.argmax(anomalies.scores)) == 3
    assert anomalies.scores[0] > 0
