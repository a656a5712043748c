"""A foreign loop while it is watched: its phases add up, and a hook finds who calls it."""

import pytest

from overwatch.adapters.loops import Phases, caller
from overwatch.events import PhaseBegan, PhaseEnded
from tests.overwatch.adapters.receiving import Received, local_run


def _ended(received: Received) -> list[str]:
    return [event.phase for event in received.of(PhaseEnded)]


def test_a_phase_interrupts_the_one_around_it() -> None:
    """Three stretches one after another, none of them in two phases."""
    run, received = local_run()
    phases = Phases(run)
    phases.switch("update")
    with phases.during("rollout"):
        pass
    phases.close()

    assert _ended(received) == ["update", "rollout", "update"]


def test_a_pause_is_whole() -> None:
    """An evaluation that generates is an evaluation; it is announced when it begins."""
    run, received = local_run()
    phases = Phases(run)
    with phases.during("evaluation"), phases.during("rollout"):
        pass
    phases.close()

    assert _ended(received) == ["evaluation"]
    assert [event.phase for event in received.of(PhaseBegan)] == ["evaluation"]


def test_what_ends_after_the_loop_is_no_phase() -> None:
    """An exception leaves nested calls: the inner one ends the run, the outer one finds it ended."""
    run, received = local_run()
    phases = Phases(run)
    phases.switch("update")
    with phases.during("rollout"):
        phases.close()

    assert _ended(received) == ["update", "rollout"]


def test_what_a_loop_does_goes_on_when_a_phase_cannot_be_reported() -> None:
    """The run is none."""
    phases = Phases(object())  # type: ignore[arg-type]  # no run at all
    with phases.during("rollout"):
        done = True

    assert done
    assert phases.failures == 1


class Owner:
    """Something with a method, and with one of its own."""

    def one(self) -> int:
        """The class's."""
        return 1

    def calls(self) -> "Owner":
        """Somebody further down looks for it."""
        return Hook().looks()


class Hook:
    """Is called, and knows its caller's kind only."""

    def looks(self) -> Owner:
        """The caller."""
        return caller(Owner)


def test_a_hook_finds_who_calls_it() -> None:
    """By its kind, through calls of others."""
    owner = Owner()
    assert owner.calls() is owner


def test_a_hook_that_is_called_by_no_such_object_names_it() -> None:
    """The error names what is missing."""
    with pytest.raises(LookupError, match="no Owner calls this hook"):
        Hook().looks()
