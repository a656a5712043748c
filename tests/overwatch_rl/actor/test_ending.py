"""An actor ends with its run, and with nothing less."""

import threading

import pytest

from overwatch_rl.actor import ending
from overwatch_rl.actor.ending import until_over
from overwatch_rl.orchestrator.client import OrchestratorError


@pytest.mark.parametrize("last", ["terminated", "completed"])
def test_an_actor_ends_when_its_run_is_over(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while the orchestrator is away, in a pause, nor when a learner failed that may go on."""
    monkeypatch.setattr(ending, "POLL_INTERVAL_S", 0.0)
    asked: list[str | None] = []
    lines: list[str] = []
    is_begun, is_over = threading.Event(), threading.Event()
    answers = iter(["", "running", "paused", "failed", last])

    def state() -> str:
        assert is_begun.wait(60)
        asked.append(outcome())
        if not (answer := next(answers)):
            raise OrchestratorError("no answer")
        return answer

    def report(line: str) -> None:
        lines.append(line)
        is_over.set()

    with until_over(lambda: None, state, report) as outcome:
        is_begun.set()
        assert is_over.wait(60)

    assert asked == [None] * 5
    assert outcome() == "completed"
    assert lines == [f"the run is {last}; this actor ends"]


def test_an_actor_that_was_asked_to_end_is_interrupted() -> None:
    """A signal comes before what the orchestrator answers."""
    with until_over(lambda: "interrupted", lambda: "terminated", lambda _: None) as outcome:
        assert outcome() == "interrupted"
