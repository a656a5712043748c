"""Rules of a user, judged in whole runs: when they open, about what, with which words."""

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.assess import dump, load
from overwatch.diagnose.judging import DiagnosisConfig, Judging, RuleConfig, judging
from overwatch.events import Event
from overwatch.state import apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

TICK = SECOND // 10


def _how(where: str, hold: str | None = None, severity: str = "warning") -> Judging:
    rule = RuleConfig(name="mine", where=where, hold=hold, severity=severity, hint="do this")
    return judging(DiagnosisConfig(rules=(rule,)))


def _reported(how: Judging, events: list[Event], ticks: int = 1) -> list[tuple[str, str | None, str, float]]:
    """Open findings of the rule, (severity, subject, message, ticks it took), after the events."""
    reported = fakes.records(events)
    state, assessment = new_run(reported[0]), Assessment()
    for record in reported:
        apply(state, record, record.event.at)
        assessment = assess(state, assessment, record.event.at, how).assessment
    for tick in range(1, ticks):
        assessment = assess(state, load(dump(assessment)), state.last_stamp + tick * TICK, how).assessment
    return [
        (item.problem.severity, item.problem.subject, item.problem.message, item.since)
        for item in assessment.findings.values()
        if item.problem.code == "rule-mine" and item.problem.hint == "do this" and item.cleared_at is None
    ]


def _updates(*values: float) -> list[Event]:
    return [
        fakes.policy(START_NS + i * SECOND, index=i + 1, kl_divergence=value, entropy=0.5)
        for i, value in enumerate(values)
    ]


def test_updates_in_a_row_are_counted_each_once() -> None:
    """Ticks between two updates count nothing; one good update begins anew."""
    how = _how("policy.kl_divergence > 0.2", "3 updates")

    assert _reported(how, _updates(0.3, 0.3), ticks=9) == []
    assert _reported(how, _updates(0.3, 0.3, 0.1, 0.3, 0.3)) == []
    ((severity, subject, message, _),) = _reported(how, _updates(0.3, 0.3, 0.4))
    assert (severity, subject, message) == ("warning", None, "mine: KL 0.4 > 0.2")


def test_updates_between_two_ticks_are_judged_one_by_one() -> None:
    """Three bad updates within one tick are three, and a good one among them is seen."""
    how = _how("policy.kl_divergence > 0.2", "3 updates")

    def at_once(*values: float) -> int:
        reported = fakes.records(_updates(*values))
        state = new_run(reported[0])
        for record in reported:
            apply(state, record, record.event.at)
        found = assess(state, Assessment(), state.last_stamp, how).assessment.findings.values()
        return sum(item.problem.code == "rule-mine" for item in found)

    assert at_once(0.3, 0.3, 0.3) == 1
    assert at_once(0.3, 0.1, 0.3, 0.3) == 0


def test_all_terms_must_hold() -> None:
    """What is absent, and what is not finite, meets no term."""
    both = _how("policy.kl_divergence > 0.2 and policy.clip_fraction > 0.3", "1 updates")

    assert _reported(both, _updates(0.3, 0.3)) == []
    assert _reported(_how("policy.kl_divergence > 0.2", "1 updates"), _updates(float("nan"))) == []


def test_envs_are_named_one_by_one_until_they_are_many() -> None:
    """Each env that meets the terms has a finding; more than twenty are one about the fleet."""
    how = _how("env.reward < -1 and env.rent > 0.5", "0s", "info")
    few = [fakes.envs(START_NS, [3, 4, 5], index=1, reward=[-2.0, -2.0, 0.0], rent=[0.6, 0.4, 0.6])]
    many = [fakes.envs(START_NS, range(40), index=1, reward=[-2.0] * 40, rent=[0.6] * 30 + [0.1] * 10)]

    assert [found[:3] for found in _reported(how, list(few))] == [("info", "3", "mine: reward -2 < -1")]
    assert [found[:3] for found in _reported(how, list(many))] == [("info", None, "mine: 30 of 40 envs")]


@pytest.mark.parametrize(("ticks", "found"), [(15, 0), (25, 1)])
def test_a_time_must_have_passed(ticks: int, found: int) -> None:
    """Two seconds are twenty ticks of a run that goes on speaking."""
    events: list[Event] = [
        fakes.envs(START_NS + i * TICK, [1], index=i + 1, step_time=[0.9]) for i in range(ticks)
    ]

    assert len(_reported(_how("env.step_time > 0.5", "2s"), events)) == found


def test_counters_of_the_run_can_be_watched() -> None:
    """E.g. that a run has crashed envs at all."""
    events: list[Event] = [fakes.envs(START_NS, [1], reward=[0.0]), fakes.crashed(START_NS + 1, 1)]

    assert [found[2] for found in _reported(_how("run.crashes >= 1", "0s"), events)]


def test_a_run_that_is_silent_is_not_judged() -> None:
    """Its values are old: a rule whose time comes within the silence finds nothing."""
    assert _reported(_how("policy.kl_divergence > 0.2", "8 s"), _updates(0.3), ticks=100) == []
