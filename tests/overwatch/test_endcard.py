"""The five lines at the end of a run."""

import msgspec
import pytest

from overwatch.endcard import card, ending
from overwatch.snapshot import Finding, Link, PhaseTimes, Reading, Run, Snapshot, Subject, Verdict


def snapshot(*findings: Finding, **run: object) -> Snapshot:
    """A run's last snapshot."""
    return Snapshot(
        time=1000.0,
        run=msgspec.convert({"run_id": "r", "update": 140, "elapsed_s": 724.0, **run}, Run),
        link=Link(state="ended"),
        verdict=Verdict(severity="ok", text="policy healthy"),
        policy={"return": Reading(value=214.0, text="+214")},
        phases=(
            PhaseTimes(name="update", counts=(), total_s=30.0),
            PhaseTimes(name="rollout", counts=(), total_s=70.0),
        ),
        findings=findings,
    )


def finding(code: str, severity: str, since: float, **more: float) -> Finding:
    """A finding about a lane."""
    return Finding(
        id=code, code=code, severity=severity, subject=Subject(scope="gpu", id="gpu0"), since=since,
        message=f"it has {code}", **more,
    )  # fmt: skip


def test_a_run_that_went_well_in_five_lines() -> None:
    """How it ended, its return and best, what stood, where the time went, what to type next."""
    assert card(snapshot(outcome="completed"), "overwatch tui", "+219 at update 81") == [
        "run r completed after 140 updates, 12m04s",
        "  return    +214, best +219 at update 81",
        "  problems  none",
        "  time      rollout 70%, update 30%",
        "  look      overwatch tui",
    ]


def test_what_stood_is_the_worst_that_was_not_cleared() -> None:
    """With how long it was open, and how much more stood; the end itself and what was over do not count."""
    lines = card(
        snapshot(
            finding("storm", "critical", 100.0, cleared_at=200.0),
            finding("run-failed", "critical", 1000.0),
            finding("slow", "warning", 400.0),
            finding("collapse", "critical", 940.0, ended_at=1000.0),
            outcome="failed", reason="RuntimeError: CUDA error 700\nat line 3",
        ),
        "overwatch tui",
    )  # fmt: skip
    assert lines[0] == "run r failed after 140 updates, 12m04s: RuntimeError: CUDA error 700"
    assert lines[2] == "  problems  CRITICAL gpu gpu0: it has collapse (open 1m at the end) · 1 more"


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_where_nothing_stood_but_the_end_that_is_the_line(outcome: str) -> None:
    """A failure is not repeated."""
    lines = card(snapshot(finding(f"run-{outcome}", "critical", 1000.0), outcome=outcome), "overwatch tui")
    assert lines[2] == "  problems  no other"


def test_what_was_not_sent_is_named_with_the_call_that_sends_it() -> None:
    """No return, no phases: neither is 0."""
    bare = msgspec.structs.replace(snapshot(outcome="completed"), policy={}, phases=())
    lines = card(bare, "overwatch tui")
    assert "run.episodes" in lines[1]
    assert "run.phase" in lines[3]


def test_many_phases_are_four_and_the_rest() -> None:
    """The largest first."""
    phases = tuple(PhaseTimes(name=str(n), counts=(), total_s=10.0) for n in range(10))
    lines = card(msgspec.structs.replace(snapshot(outcome="completed"), phases=phases), "overwatch tui")
    assert lines[3] == "  time      0 10%, 1 10%, 2 10%, 3 10%, other 60%"


def test_a_run_that_goes_on_has_no_end() -> None:
    """A snapshot before the end states it."""
    assert ending(None, None) == "goes on"
