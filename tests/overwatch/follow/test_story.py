"""Rows as events: whose names they are, what is an update, and when it was."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from overwatch.catalog import KL, Library, Scope
from overwatch.catalog.run import STEPS
from overwatch.events import Event, Measured, RunFinished, RunStarted
from overwatch.follow.base import Logged
from overwatch.follow.columns import Chosen
from overwatch.follow.files import File
from overwatch.follow.readers import by_name
from overwatch.follow.runs import Run
from overwatch.follow.story import ALIVE_NS, SECOND, Declared, Story
from overwatch.journal import Signal
from overwatch.otlp.decode import decode

HUGE = pytest.param(10**400, id="huge")
FILE_NS = 1_800_000_000 * SECOND
SB3_ROW = {"time/iterations": 1, "time/time_elapsed": 2, "time/total_timesteps": 128, "train/approx_kl": 0.01}


def events(story: Story, *rows: dict[str, Any] | Logged, config: dict[str, str] | None = None) -> list[Event]:
    """What a story makes of rows that were all there."""
    logged: Sequence[Logged] = [row if isinstance(row, Logged) else Logged(values=row) for row in rows]
    moments = story.moments(logged, config or {}, FILE_NS)
    found = [event for moment in moments for event in moment.events]
    assert all(moment.at == event.at for moment in moments for event in moment.events)
    return found


def updates(found: list[Event]) -> list[Measured]:
    """Measurements of the policy."""
    return [event for event in found if isinstance(event, Measured) and event.scope is Scope.POLICY]


def values(event: Measured) -> dict[str, float]:
    """Numbers by name."""
    return {name.rpartition("overwatch.policy.")[2]: column.first() for name, column in event.values.items()}


def test_names_of_a_library_fill_their_rows_in_the_rows_unit() -> None:
    """SB3's entropy loss is minus nats; its steps are the run's; its time and step are no charts."""
    story = Story(Declared())
    found = events(story, {**SB3_ROW, "train/entropy_loss": -0.5, "mine": 3})
    (update,) = updates(found)
    (steps,) = [one for one in found if isinstance(one, Measured) and one.scope is Scope.RUN]

    assert isinstance(found[0], RunStarted)
    assert values(update) == {"kl_divergence": 0.01, "entropy_nats": 0.5, "overwatch.custom.mine": 3}
    assert steps.values[STEPS.name].first() == 128


def test_rows_of_an_episode_are_no_update() -> None:
    """CleanRL logs a return at each episode's end; losses of one step are one update however they come."""
    story = Story(Declared())
    found = updates(
        events(
            story,
            Logged(values={"charts/episodic_return": 20.0}, step=7),
            Logged(values={"losses/approx_kl": 0.1, "losses/clipfrac": 0.2}, step=128),
            Logged(values={"losses/value_loss": 0.1}, step=128),
            Logged(values={"charts/episodic_return": 21.0}, step=140),
            Logged(values={"losses/approx_kl": 0.1}, step=256),
        )
    )

    assert story.updates == 2
    assert [one.index for one in found] == [None, 1, 1, 1, 2]
    assert [one.updates(before) for one, before in zip(found, (None, None, 1, 1, 1), strict=True)] == [
        0,
        1,
        0,
        0,
        1,
    ]


def test_a_column_that_counts_updates_numbers_them() -> None:
    """One of the known names, or the one that the user gives."""
    known = updates(events(Story(Declared()), {**SB3_ROW, "time/iterations": 41}))
    chosen = Story(Declared(chosen=Chosen(step="round")))
    named = updates(events(chosen, {"round": 7, "approx_kl": 0.1}, {"round": 9, "approx_kl": 0.1}))

    assert [one.index for one in (*known, *named)] == [41, 7, 9]


def test_nan_and_infinity_are_what_the_program_wrote() -> None:
    """They go on as they are; a value that is missing is absent."""
    (update,) = updates(events(Story(Declared()), {"approx_kl": math.nan, "grad_norm": math.inf}))

    assert math.isnan(update.values[KL.name].first())
    assert math.inf in values(update).values()


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        ([{"_timestamp": 1.7e9}, {"_timestamp": 1.7e9 + 5}], [1.7e9, 1.7e9 + 5]),
        ([{"timestamp": 1.7e12}], [1.7e9]),
        ([{"date": "2026-01-01T00:00:00"}], [1_767_225_600]),
        ([{"time/time_elapsed": 10}, {"time/time_elapsed": 40}], [FILE_NS / SECOND - 30, FILE_NS / SECOND]),
        ([{"time": 3.5}, {"time": 4.5}], [FILE_NS / SECOND - 1, FILE_NS / SECOND]),
        ([{"_timestamp": 1.7e9}, {"_timestamp": 1.6e9}], [1.7e9, 1.7e9]),
    ],
)
def test_rows_have_the_times_of_their_columns(rows: list[dict[str, Any]], seconds: list[float]) -> None:
    """Of the calendar in s and ms and as text; since the start; none, which is evenly spaced; never back."""
    story = Story(Declared())
    found = updates(events(story, *({"approx_kl": 0.1, **row} for row in rows)))

    assert [one.at / SECOND for one in found] == seconds
    assert story.is_spaced == ("time" in rows[0])


@pytest.mark.parametrize(
    "time",
    ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00", "1970-01-01", 5e10, 1e11, -5e9, 0, math.nan, HUGE],
)
def test_a_time_of_no_calendar_is_none(time: object) -> None:
    """Of years that no nanoseconds reach, or before any trainer: the row has the file's."""
    row = {"approx_kl": 0.1}
    for given in ({**row, "timestamp": time}, Logged(values=row, at=cast("Any", time))):
        story = Story(Declared())

        assert [one.at for one in updates(events(story, given))] == [FILE_NS]
        assert story.is_spaced


@pytest.mark.parametrize("since", [HUGE, 1e300, -1e300, 1e19, 1.1e9, -1])
def test_no_run_is_as_long_as_a_broken_clock_has_it(since: float) -> None:
    """The other rows have their times, whichever comes first."""
    for place in range(3):
        rows: list[dict[str, Any]] = [{"approx_kl": 0.1, "time/time_elapsed": n} for n in (10, 20, 30)]
        rows[place]["time/time_elapsed"] = since
        times = [one.at for one in updates(events(Story(Declared()), *rows))]

        assert times == sorted(times)
        assert FILE_NS - 30 * SECOND <= times[0] <= times[-1] <= FILE_NS


def test_a_writer_that_writes_seldom_is_alive() -> None:
    """Between rows that are a minute apart there is a sign of life each few seconds."""
    found = events(Story(Declared()), {"_timestamp": 1.7e9, "kl": 1}, {"_timestamp": 1.7e9 + 60, "kl": 1})
    alive = [one for one in found if isinstance(one, Measured) and one.scope is Scope.TOWER]

    assert [one.at for one in alive] == [int(1.7e9) * SECOND + n * ALIVE_NS for n in range(1, 15)]


@pytest.mark.parametrize("years", [0.1, 1, 50])
def test_of_a_writer_that_was_away_no_sign_of_life_is_made_up(years: float) -> None:
    """Not between rows, where it was resumed, nor up to now, where its file is old; then they go on."""
    at = int(1.7e9 + years * 365 * 86_400)
    story = Story(Declared())
    found = events(story, {"_timestamp": 1.7e9, "kl": 1}, {"_timestamp": at, "kl": 1})

    assert not [one for one in found if isinstance(one, Measured) and one.scope is Scope.TOWER]
    now = 2 * at * SECOND
    assert not list(story.alive(now))
    assert [one.at for one in story.alive(now + 1)] == [now]


def test_what_the_user_and_the_file_state_of_the_run_begins_it() -> None:
    """The user's word stands; the number of actions gives the most entropy; grpo has its limits."""
    story = Story(Declared(algo="grpo", config={"n_actions": "2"}))
    started = events(story, SB3_ROW, config={"lr": "0.1", "algo": "ppo"})[0]

    assert isinstance(started, RunStarted)
    assert (started.algo, started.chosen) == ("grpo", "grpo")
    assert started.config == {"lr": "0.1", "algo": "ppo", "n_actions": "2", "max_entropy": repr(math.log(2))}


def test_cleanrls_settings_name_the_run_and_secrets_are_left_out() -> None:
    """The experiment's name is its algorithm, as for the adapter."""
    config = {"exp_name": "ppo", "env_id": "CartPole-v1", "api_key": "k"}
    started = events(Story(Declared()), SB3_ROW, config=config)[0]

    assert isinstance(started, RunStarted)
    assert (started.algo, started.task) == ("ppo", "CartPole-v1")
    assert started.config["api_key"] != "k"


def test_a_run_that_never_began_has_no_end() -> None:
    """No row, no run; else the end is never before the last row."""
    empty, story = Story(Declared()), Story(Declared())
    events(story, SB3_ROW)
    (ended,) = story.finish(5, "failed", "why")

    assert list(empty.finish(5, "failed", "why")) == []
    assert ended.events == (RunFinished(at=FILE_NS, outcome="failed", reason="why"),)


def test_too_many_names_are_left_out_and_counted() -> None:
    """A run has 256 custom names; the others are named once, with how often."""
    story = Story(Declared())
    (update,) = updates(events(story, {f"name{place}": 1.0 for place in range(300)}))

    assert len(update.values) == 256
    assert story.refused.total() == 44


def test_numbers_by_another_axis_are_of_the_same_update() -> None:
    """As rl_games writes them, by frame, by epoch and by seconds: an update each epoch, as its adapter."""
    story = Story(Declared(chosen=Chosen(library=Library.RL_GAMES)))
    for epoch in range(1, 6):
        frame = epoch * 1000.0
        events(
            story,
            Logged(values={"losses/a_loss": 0.1, "info/kl": 0.01}, step=frame),
            Logged(values={"diagnostics/exp_var": 0.5}, step=float(epoch)),
            Logged(values={"rewards/step": 1.0}, step=frame),
            Logged(values={"rewards/iter": 1.0}, step=float(epoch)),
            Logged(values={"rewards/time": 1.0}, step=epoch * 7.0),
        )

    assert story.updates == 5


def test_a_run_that_is_left_alone_for_an_hour_has_ended_and_goes_on_when_it_is_written_to(
    tmp_path: Path,
) -> None:
    """Files show no process: the end is not known, and it is no end for ever."""
    path, began = tmp_path / "a.jsonl", 1_800_000_000
    path.write_text(f'{{"_timestamp": {began}, "kl": 0.1}}\n')
    os.utime(path, (began, began))
    kind = by_name(path.name)
    assert kind is not None
    run = Run("r", [File(path, kind.make)], Declared())

    def sent(now: int) -> list[str]:
        requests = [*run.read(now * SECOND)] or [*run.alive(now * SECOND)]
        found = [record.event for one in requests for record in decode(Signal.LOGS, one.body).records]
        return [getattr(event, "outcome", type(event).__name__) for event in found]

    assert sent(began + 1) == ["RunStarted", "Measured"]
    assert set(sent(began + 1800)) == {"Measured"}
    assert sent(began + 3700)[-1] == "ended"
    assert sent(began + 9000) == []
    with path.open("a") as file:
        file.write(f'{{"_timestamp": {began + 9001}, "kl": 0.1}}\n')
    os.utime(path, (began + 9001, began + 9001))
    assert sent(began + 9001) == ["RunStarted", "Measured"]
