"""The reporter and its border: few records, every transition, and no error reaches the training loop."""

import math

import pytest

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.envs import EnvReporter
from overwatch.events import EpisodeEnded, NonFiniteSeen
from tests.overwatch.adapters.receiving import Received, local_run
from tests.overwatch.sdk.sink import Sink


def test_many_turns_are_few_records_and_no_step_is_lost() -> None:
    """The first turn is sent at once, the last one at the end, with the mean turn of those between."""
    run, received = local_run()
    report = EnvReporter(run, 2, "cpu")
    report.turn([0.0, 0.0], 1.0)
    for turn in range(1, 201):
        report.turn([turn, -turn], 0.5)
    report.flush()
    report.flush()

    reported = received.envs()
    assert 2 <= len(reported) < 100
    assert [reported[0].index, reported[-1].index] == [1, 201]
    assert reported[-1].values["overwatch.env.reward"].array().tolist() == [200.0, -200.0]
    assert reported[-1].values["overwatch.env.step_time"].array().tolist() == [0.5, 0.5]
    assert reported[-1].values["lane"].words() == ["cpu", "cpu"]


def test_rows_that_did_not_count_keep_their_reward_and_their_number_of_steps() -> None:
    """Three turns of two envs, of which one row was a reset: five transitions, two whole steps."""
    run, received = local_run()
    report = EnvReporter(run, 2)
    for reward, rows in ((1.0, [0, 1]), (2.0, [0]), (3.0, [0, 1]), (9.0, [])):
        report.turn([reward] * len(rows), 0.1, False, rows=rows)
    report.flush()

    last = received.envs()[-1]
    assert (last.index, last.values["overwatch.env.reward"].array().tolist()) == (2, [3.0, 3.0])


@pytest.mark.parametrize(("took", "records"), [(0.0001, 15), (0.005, 3), (0.5, 2)])
def test_what_sending_takes_is_a_small_share_of_the_thread(
    monkeypatch: pytest.MonkeyPatch, took: float, records: int
) -> None:
    """A second and a half of turns on a busy machine, where the thread works half of the time."""
    clock = Clock(took)
    monkeypatch.setattr("overwatch.adapters.envs.time", clock)
    report = EnvReporter(clock, 1)  # type: ignore[arg-type]  # counts what a run is given
    for _ in range(150):
        report.turn([1.0], 0.01)
        clock.now += 0.01
    assert clock.records == pytest.approx(records, abs=1)


class Clock:
    """The time, and a run that takes its time."""

    def __init__(self, took: float) -> None:
        self.now, self.records, self._took, self._sent = 100.0, 0, took, 0.0

    def monotonic(self) -> float:
        """Of everybody."""
        return self.now

    def thread_time(self) -> float:
        """Of this thread."""
        return self.now / 2 + self._sent

    def envs(self, **_: object) -> None:
        """Take a record."""
        self.records += 1
        self._sent += self._took


def test_a_reward_that_is_not_finite_is_sent(sink: Sink) -> None:
    """A NaN between two records is a fact, though the next turn is healthy again."""
    run = sdk.start(run_id="r", sample=False)
    report = EnvReporter(run, 2)
    for reward in (1.0, math.nan, 1.0):
        report.turn([1.0, reward], 0.1)
    report.flush()

    assert run.close(5.0).delivered
    (seen,) = sink.events(NonFiniteSeen)
    assert (seen.metric, seen.env_ids) == ("overwatch.env.reward", (1,))


class Fragile(Bordered):
    """Breaks at every call."""

    @kept_out
    def call(self, divisor: int) -> None:
        """Divide."""
        1 / divisor


def test_errors_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two failures, one line that names the call and the error; a good call counts nothing."""
    fragile = Fragile()

    fragile.call(0)
    fragile.call(1)
    fragile.call(0)

    assert fragile.failures == 2
    assert len(caplog.records) == 1
    assert "Fragile.call: ZeroDivisionError" in caplog.text


def test_envs_that_were_reset_begin_anew() -> None:
    """One in the middle of an episode has no end; one that has just ended lost nothing."""
    run, received = local_run(2)
    report = EnvReporter(run, 2)
    report.turn([5.0, 5.0], 0.01, [False, True])
    report.forget([1])
    report.forget([0])
    report.turn([1.0, 1.0], 0.01, [True, True])
    report.flush()

    assert _episodes(received) == [(1, 5.0, 1.0), (0, 1.0, 1.0), (1, 1.0, 1.0)]


def _episodes(received: Received) -> list[tuple[int, float, float]]:
    columns = [(one.env_id, one.episode_return, one.length) for one in received.of(EpisodeEnded)]
    return [
        row for group in columns for row in zip(*(column.array().tolist() for column in group), strict=True)
    ]
