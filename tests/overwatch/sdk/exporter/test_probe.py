"""Questions asked in the background."""

import threading
from collections.abc import Iterator

import pytest

from overwatch.sdk.exporter.probe import Probe

DEADLINE_S = 10.0


class Slow:
    """A question that is answered when the test states it."""

    def __init__(self) -> None:
        self.requested = threading.Semaphore(0)
        self.answer = threading.Semaphore(0)
        self.count = 0

    def __call__(self) -> int:
        """Wait for the answer."""
        self.count += 1
        self.requested.release()
        assert self.answer.acquire(timeout=DEADLINE_S)
        return self.count


@pytest.fixture
def slow() -> Iterator[Slow]:
    """A question, answered at the latest when the test ends."""
    question = Slow()
    yield question
    question.answer.release()


def answered(probe: Probe[object], wake_up: threading.Condition) -> bool:
    """Wait until no question is under way."""
    with wake_up:
        return wake_up.wait_for(lambda: not probe.busy, DEADLINE_S)


def test_a_question_under_way_is_not_asked_again(slow: Slow) -> None:
    """However often it is wanted; once answered it is asked anew, and the answer is taken once."""
    wake_up = threading.Condition()
    probe = Probe("slow", slow, wake_up)
    assert probe.query()
    assert slow.requested.acquire(timeout=DEADLINE_S)
    assert [probe.query() for _ in range(5)] == [False] * 5
    assert probe.take() is None
    slow.answer.release()
    assert answered(probe, wake_up)
    assert slow.count == 1
    found = probe.take()
    assert found is not None
    assert found[1] == 1
    assert probe.take() is None
    assert probe.query()
    probe.stop()


def test_a_question_that_breaks_is_counted_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is stated once, and the thread lives."""
    wake_up, left = threading.Condition(), [3]

    def question() -> str:
        left[0] -= 1
        if left[0] > 0:
            raise ZeroDivisionError("broken")
        return "well"

    probe = Probe("odd", question, wake_up)
    for _ in range(3):
        assert probe.query()
        assert answered(probe, wake_up)
    found = probe.take()
    probe.stop()

    assert found is not None
    assert found[1] == "well"
    assert probe.failed == 2
    assert caplog.text.count("odd cannot be read: ZeroDivisionError: broken") == 1


def test_a_stopped_probe_asks_nothing() -> None:
    """Nothing begins after the end."""
    probe = Probe("done", lambda: 1, threading.Condition())
    probe.stop()

    assert not probe.query()


def test_an_answer_that_came_late_is_kept_until_it_is_taken(slow: Slow) -> None:
    """What a question brought is never replaced by the next one's answer: an error is reported only once."""
    wake_up = threading.Condition()
    probe = Probe("slow", slow, wake_up)
    assert probe.query()
    slow.answer.release()
    assert answered(probe, wake_up)
    slow.answer.release()
    probe.query()
    assert answered(probe, wake_up)
    found = probe.take()
    assert found is not None
    assert found[1] == 1
    assert probe.query()
    probe.stop()
