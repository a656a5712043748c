"""Findings open, last, clear and suppress one another; the link separates fresh from old."""

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.assess import dump, load
from overwatch.diagnose.liveness import judge_link
from overwatch.diagnose.policy_rows import WARM_UP_UPDATES
from overwatch.diagnose.problem import LINGER_NS
from overwatch.events import Column, Event, Measured, scalars
from overwatch.state import RunState, apply
from overwatch.state import dump as dump_state
from overwatch.state import load as load_state
from tests import fakes
from tests.fakes import SECOND, START_NS


def _codes(events: list[Event], tick: int) -> dict[str, str]:
    judged = assess(fakes.folded(events), Assessment(), tick)
    return {item.problem.code: item.problem.severity for item in judged.assessment.findings.values()}


def _updates(values: list[float]) -> list[Event]:
    return [
        fakes.policy(START_NS + i * SECOND, index=i, kl_divergence=value) for i, value in enumerate(values)
    ]


def test_a_healthy_run_has_no_finding() -> None:
    """Nothing wrong, nothing reported."""
    events: list[Event] = [fakes.started(START_NS), *_updates([0.01] * 30)]

    assert _codes(events, START_NS + 29 * SECOND) == {}


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ([0.2, 0.01, 0.2, 0.01, 0.01], {"kl-spike": "info"}),
        ([0.02, 0.01, 0.02, 0.01, 0.02], {"policy-kl-divergence": "warning"}),
        ([0.2, 0.01, 0.2, 0.01, 0.2], {"policy-kl-divergence": "critical"}),
        ([0.2, 0.02, 0.2, 0.01, 0.01], {"policy-kl-divergence": "warning"}),
    ],
)
def test_a_policy_finding_needs_its_hold(bad: list[float], expected: dict[str, str]) -> None:
    """Three of the last five updates must be bad, and as bad as it states."""
    values = [0.01] * WARM_UP_UPDATES + bad

    assert _codes(_updates(values), START_NS + len(values) * SECOND) == expected


def test_a_non_finite_value_is_a_finding_at_once() -> None:
    """No warm-up, no hold: NaN is critical when it is seen."""
    events: list[Event] = [fakes.non_finite(START_NS, "overwatch.policy.loss")]

    assert _codes(events, START_NS + SECOND) == {"non-finite": "critical"}


def test_a_crashed_env_is_a_finding_about_that_env() -> None:
    """The finding names the env and since when."""
    state = fakes.folded([fakes.envs(START_NS, [7], reward=[0.0]), fakes.crashed(START_NS + 5, 7)])
    (item,) = assess(state, Assessment(), START_NS + SECOND).assessment.findings.values()

    assert (item.problem.code, item.problem.subject, item.since) == ("env-crashed", "7", START_NS + 5)


def test_a_finding_keeps_its_first_moment_and_lingers_when_gone() -> None:
    """`since` is the beginning; after the cause is gone the finding stays five seconds, marked cleared."""
    state = fakes.folded([fakes.envs(START_NS, [7], reward=[0.0]), fakes.crashed(START_NS + 5, 7)])
    first = assess(state, Assessment(), START_NS + SECOND).assessment
    back: list[Event] = [
        fakes.envs(START_NS, [7], reward=[0.0]),
        fakes.crashed(START_NS + 5, 7),
        fakes.envs(START_NS + SECOND, [7], reward=[0.0]),
    ]
    alive, later = (
        fakes.folded(back),
        fakes.folded([*back, fakes.envs(START_NS + 7 * SECOND, [7], reward=[0.0])]),
    )
    gone = START_NS + 2 * SECOND
    cleared = assess(alive, first, gone).assessment
    (item,) = cleared.findings.values()

    assert (item.since, item.cleared_at) == (START_NS + 5, gone)
    assert assess(later, cleared, gone + LINGER_NS).assessment.findings == {}


def test_old_data_that_just_arrived_is_catching_up() -> None:
    """The age is that of the data, not of the packet, and a constant clock offset does not count."""
    offset = 100 * SECOND
    reported = fakes.records([fakes.policy(START_NS + i, index=i, entropy=0.5) for i in range(2)])
    state = fakes.folded([reported[0].event], delay_ns=offset)
    apply(state, reported[1], reported[1].event.at + offset + 30 * SECOND)
    link = judge_link(state, state.last_stamp)

    assert link.state == "catching_up"
    assert link.data_age_s == pytest.approx(30.0)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_assessment_survives_a_checkpoint(cut: int) -> None:
    """Judging on from reloaded bytes ends in the same bytes as judging straight through.

    On the way there are findings that are open, waiting, cleared and cooling, and a bound about to change.
    """
    reported = _troubled()
    straight, reloaded = Assessment(), Assessment()
    for i, state in enumerate(reported):
        tick = START_NS + (i + 1) * SECOND // 2
        straight = assess(state, straight, tick).assessment
        reloaded = assess(state, load(dump(reloaded)) if i == cut else reloaded, tick).assessment

    assert dump(reloaded) == dump(straight)
    assert straight.watched.held["gpu0"].bound.state == "IO-BOUND"
    assert straight.followed.open


def _troubled() -> list[RunState]:
    """Two states a second: a crash that heals, a slow env that comes and goes, a loader that runs dry."""
    state = fakes.folded([fakes.started(START_NS)], delay_ns=0)
    found = []
    for i in range(60):
        at = START_NS + i * SECOND // 2
        slow = 0.2 if 10 < i < 30 else 0.01
        events: list[Event] = [
            fakes.envs(at, [1, 2, 3, 4, 5], index=i + 1, step_time=[slow, 0.01, 0.011, 0.012, 0.013]),
            Measured(
                at=at,
                scope=Scope.GPU,
                keys={"gpu_id": Column.of_labels(["gpu0"])},
                values={"hw.gpu.utilization": Column.of([0.95 if i < 20 else 0.3])},
            ),
            Measured(
                at=at,
                scope=Scope.HOST,
                values=scalars({"overwatch.host.loader.depth": 0.0, "overwatch.host.loader.limit": 8.0}),
            ),
        ]
        events += [fakes.crashed(at + 1, 7)] if i == 5 else []
        events += [fakes.envs(at + 1, [7], reward=[0.0])] if i > 8 else []
        for record in fakes.records(events, first_seq=2 + 5 * i):
            apply(state, record, at + 2)
        found.append(load_state(dump_state(state)))
    return found
