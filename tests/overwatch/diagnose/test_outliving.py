"""What stood when a run last emitted stays as it was: its end heals nothing, and brings nothing about."""

from collections.abc import Sequence

import msgspec
import pytest

from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.assess import dump, load
from overwatch.events import Event, FindingAcknowledged, Measured, PhaseEnded, Record, RunFinished, scalars
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

TENTH = SECOND // 10
END = 60


def _sick(seconds: int = END) -> list[Event]:
    """Updates of which the newest have far too much KL and clipping and no entropy left."""
    bad_from = seconds - 12
    return [
        fakes.policy(
            START_NS + n * SECOND, index=n + 1, kl_divergence=0.2 if n >= bad_from else 0.01,
            clip_fraction=0.8 if n >= bad_from else 0.1, entropy=0.01 if n >= bad_from else 0.6,
        )
        for n in range(seconds)
    ]  # fmt: skip


def _end(outcome: str = "completed", second: float = END, reason: str | None = None) -> RunFinished:
    return RunFinished(at=START_NS + int(second * SECOND), outcome=outcome, reason=reason)


class _Run:
    """A run that is judged every tenth of a second, with the clock that its events give."""

    def __init__(self) -> None:
        self.state: RunState | None = None
        self.kept = Assessment()
        self.tick = START_NS
        self.judged: Judged | None = None

    def report(self, events: Sequence[Event], *, at_once: bool = False) -> "_Run":
        """Fold events as they happen, or all of them within one tick."""
        for event in sorted(events, key=lambda event: event.at):
            if not at_once:
                self.wait_until(event.at)
            (record,) = fakes.records([event])
            record = Record(origin=record.origin, event=event, seq=None)
            self.state = self.state or new_run(record)
            apply(self.state, record, max(event.at, self.tick))
        return self.wait(0.1)

    def wait_until(self, at: int) -> None:
        """Let ticks pass."""
        while self.tick < at:
            self.tick += TENTH
            if self.state is not None:
                self.judged = assess(self.state, load(dump(self.kept)), self.tick)
                self.kept = self.judged.assessment

    def wait(self, seconds: float) -> "_Run":
        """Let ticks pass."""
        self.wait_until(self.tick + int(seconds * SECOND))
        return self

    @property
    def open(self) -> dict[str, tuple[str, int]]:
        """Severity and beginning of what is open, by code."""
        found = self.kept.findings.values()
        return {
            item.problem.code: (item.problem.severity, item.since)
            for item in found
            if item.cleared_at is None
        }


@pytest.mark.parametrize("at_once", [False, True], ids=["live", "in one batch"])
@pytest.mark.parametrize("outcome", ["completed", "interrupted", "failed", "lost"])
def test_the_end_keeps_what_stood(outcome: str, *, at_once: bool) -> None:
    """Neither cleared nor judged again, for an hour of ticks and records of workers that end later."""
    run = _Run().report([*_sick(), _end(outcome)], at_once=at_once)
    own = {"failed": {"run-failed"}, "lost": {"run-lost"}}.get(outcome, set())
    stood = run.open
    assert stood["policy-collapse"][0] == "critical"
    assert own <= stood.keys()

    run.wait(40)
    assert run.open == stood
    assert all(item.cleared_at is None and item.gone_at is None for item in run.kept.findings.values())


@pytest.mark.parametrize(("bad_s", "codes"), [(25, {"policy-collapse"}), (8, set())])
def test_the_end_carries_a_critical_that_stood_for_more_than_a_moment(bad_s: int, codes: set[str]) -> None:
    """It cleared just before the end, which came too soon to show."""
    sick = _sick(END)[END - 12 :] * 3
    bad = [
        msgspec.structs.replace(event, at=START_NS + (20 + n) * SECOND, index=21 + n)
        for n, event in enumerate(sick[:bad_s])
    ]
    well = [_sick(END)[0]] * 60
    before, after = well[:20], well[20 + bad_s : 35 + bad_s]
    fine = [
        msgspec.structs.replace(event, at=START_NS + second * SECOND, index=second + 1)
        for second, event in [*enumerate(before), *enumerate(after, start=20 + bad_s)]
    ]
    run = _Run().report([*fine, *bad])
    assert "policy-collapse" not in run.open

    assert run.report([_end(second=35 + bad_s)]).wait(20).open.keys() - {"kl-spike"} == codes


def test_silence_keeps_what_stood_too() -> None:
    """A collapse is not over because nothing is received; what the run emits next decides."""
    run = _Run().report(_sick())
    before = run.open["policy-collapse"]

    assert run.wait(20).open == {"policy-collapse": before, "telemetry-stale": run.open["telemetry-stale"]}
    assert run.wait(60).open.keys() == {"policy-collapse", "run-lost"}
    later = START_NS + 200 * SECOND
    well = [
        fakes.policy(later + n * SECOND, index=70 + n, kl_divergence=0.01, clip_fraction=0.1, entropy=0.6)
        for n in range(30)
    ]
    assert run.report(well).open == {}


def test_a_well_run_ends_well() -> None:
    """Nothing is found because a run ended."""
    beats = [fakes.policy(START_NS + n * SECOND, index=n + 1, kl_divergence=0.01) for n in range(END)]

    assert _Run().report([*beats, _end()]).wait(30).open == {}


def _stepping(ids: range, seconds: range, offset: int = 0) -> list[Event]:
    return [
        fakes.envs(
            START_NS + second * SECOND + offset,
            ids,
            index=second,
            reward=[1.0] * len(ids),
            step_time=[0.1] * len(ids),
        )
        for second in seconds
    ]


@pytest.mark.parametrize(("stalled_for", "stands"), [(7, False), (25, True)])
def test_envs_that_stop_because_training_ended_are_no_finding(stalled_for: int, *, stands: bool) -> None:
    """One env waits for good before the end: it stood if the policy still learned after it stopped."""
    learned_until = END - 10
    updates = [fakes.policy(START_NS + n * SECOND, index=n + 1, entropy=0.6) for n in range(learned_until)]
    others, stuck = _stepping(range(7), range(END)), _stepping(range(7, 8), range(END - stalled_for))
    run = _Run().report([*updates, *others, *stuck])
    assert "env-stalled" in run.open

    assert ("env-stalled" in run.report([_end()]).wait(20).open) == stands


def test_a_loop_that_stopped_for_its_last_checkpoint_is_no_stall_of_a_run_that_is_over() -> None:
    """Saving and tearing down may take a minute: the end record is the answer."""
    phases: list[Event] = []
    for n in range(20):
        at = START_NS + n * SECOND
        phases += [
            PhaseEnded(at=at, phase="update", duration_s=1.0),
            fakes.policy(at, index=n + 1, entropy=0.6),
        ]
    host = [Measured(at=START_NS + n * SECOND, scope=Scope.HOST,
                           values=scalars({"system.cpu.utilization": 0.5})) for n in range(60)]  # fmt: skip
    run = _Run().report([*phases, *host])
    assert "training-stalled" in run.open

    assert run.report([_end()]).wait(20).open == {}


def test_what_is_about_telemetry_leaves_with_the_end() -> None:
    """A run that was silent for a while and then sends its end is neither stale nor lost."""
    run = _Run().report(_sick()).wait(20)
    assert "telemetry-stale" in run.open

    run.report([_end(second=81)])
    assert run.wait(10).open.keys() == {"policy-collapse"}


def test_nothing_opens_after_the_end() -> None:
    """A cooldown that runs out, a hold that is reached, records of workers: nothing of it is judged."""
    run = _Run().report([*_sick(END - 9)]).report([_end(second=END)])
    stood = run.open.keys()
    late = [
        fakes.policy(START_NS + (END + n) * SECOND, index=END + n, kl_divergence=0.5, grad_norm=1e9)
        for n in range(30)
    ]
    crash = [fakes.crashed(START_NS + (END + 3) * SECOND, 3)]

    assert run.report([*late, *crash]).open.keys() == stood


def test_a_new_attempt_is_judged_again() -> None:
    """What stood at the end of the first one is judged by the values of the next."""
    run = _Run().report([*_sick(), _end()]).wait(5)
    later = START_NS + 100 * SECOND
    well = [
        fakes.policy(later + n * SECOND, index=1 + n, kl_divergence=0.01, clip_fraction=0.1, entropy=0.6)
        for n in range(1, 40)
    ]

    assert run.report([fakes.started(later), *well]).open == {}


def test_an_acknowledged_finding_stays_acknowledged_and_can_be_after_the_end() -> None:
    """An operator sees it the next morning."""
    run = _Run().report([*_sick(), _end()]).wait(5)
    seen = FindingAcknowledged(at=START_NS + 70 * SECOND, finding="policy-collapse:policy:")
    run.report([seen]).wait(20)

    assert run.kept.findings["policy-collapse:policy:"].acknowledged


def test_lanes_have_no_verdict_after_the_end() -> None:
    """Their readings are over."""
    run = _Run().report([*_sick(), _end()])

    assert run.judged is not None
    assert (run.judged.bounds, run.judged.bound) == ({}, None)


def test_a_fact_that_comes_with_the_end_is_found() -> None:
    """A crash and the failure that it brought about arrive together."""
    beats = [fakes.envs(START_NS + n * SECOND, range(4), index=n, reward=[1.0] * 4) for n in range(20)]
    run = (
        _Run()
        .report(beats)
        .report([fakes.crashed(START_NS + 20 * SECOND, 2), _end("failed", 20)], at_once=True)
    )

    assert {"env-crashed", "run-failed"} <= run.wait(30).open.keys()
