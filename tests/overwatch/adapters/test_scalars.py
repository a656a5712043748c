"""Scalars by name and step: which of them are one update, which are episodes, and what is of neither."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from overwatch.adapters.scalars import Scalars
from overwatch.adapters.starting import given_library
from overwatch.catalog import KL, Library
from overwatch.events import EpisodeEnded, Measured, PhaseEnded, RunFinished
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.receiving import Received, local_run

RETURN, LENGTH = "overwatch.policy.return", "overwatch.policy.episode_length"


def _scalars(library: str | None = None) -> tuple[Scalars, Received]:
    run, received = local_run()
    return Scalars(lambda: run, library), received


def _updates(received: Received) -> list[tuple[int, dict[str, float]]]:
    """Number and values of what was sent, those of one number together."""
    found: dict[int, dict[str, float]] = {}
    for update in received.of(Update):
        found.setdefault(update.index, {}).update(update.values)
    return list(found.items())


def _add(scalars: Scalars, step: float | None, **values: float) -> None:
    for name, value in values.items():
        scalars.add(name.replace("__", "/"), value, step)
    assert scalars.failures == 0


def test_the_scalars_of_a_step_are_an_update() -> None:
    """Each with a number of its own, in the rows of the library that has these names."""
    scalars, received = _scalars()
    for step in (512, 1024):
        _add(scalars, step, losses__approx_kl=0.01, losses__value_loss=step, charts__SPS=900.0)
    scalars.close()

    assert _updates(received) == [
        (n, {KL.name: 0.01, "overwatch.policy.value_loss": 512.0 * n, "overwatch.custom.charts/SPS": 900.0})
        for n in (1, 2)
    ]
    assert [one.outcome for one in received.of(RunFinished)] == ["completed"]


def test_numbers_of_several_agents_are_custom() -> None:
    """None of them is the run's, in a row of the library or of the catalogue."""
    scalars, received = _scalars()
    for step in (1, 2):
        _add(
            scalars, step, losses__approx_kl=0.01, red__entropy=0.5, blue__entropy=0.1, agents__a__return=7.0
        )
    scalars.close()

    found = {KL.name: 0.01, RETURN: 7.0}
    agents = {"overwatch.custom.red/entropy": 0.5, "overwatch.custom.blue/entropy": 0.1}
    assert _updates(received) == [(n, found | agents) for n in (1, 2)]


def test_an_update_that_has_all_names_of_the_one_before_does_not_wait() -> None:
    """A long update is seen when it is logged, not when the next one is."""
    scalars, received = _scalars()
    _add(scalars, 1, losses__approx_kl=0.1, losses__clipfrac=0.1)
    assert received.of(Update) == []
    _add(scalars, 2, losses__approx_kl=0.2, losses__clipfrac=0.2)
    assert [update.index for update in received.of(Update)] == [1, 2]

    _add(scalars, 2, charts__SPS=5.0)
    scalars.end()
    assert [update.index for update in received.of(Update)] == [1, 2, 2]
    assert _updates(received)[1][1]["overwatch.custom.charts/SPS"] == 5.0


def test_cleanrls_episodes_are_episodes_and_no_updates() -> None:
    """Several at one step, each with its length; an update has the means of those since the last one."""
    scalars, received = _scalars()
    for step, earned in ((40, 10.0), (40, 20.0), (80, 60.0)):
        _add(scalars, step, charts__episodic_return=earned, charts__episodic_length=earned * 2)
    _add(scalars, 128, losses__approx_kl=0.01, losses__clipfrac=0.2)
    _add(scalars, 140, charts__episodic_return=7.0)
    _add(scalars, 256, losses__approx_kl=0.02, losses__clipfrac=0.2)
    scalars.close()

    episodes = [(one.episode_return.array().tolist(), one.length and one.length.array().tolist())
                for one in received.of(EpisodeEnded)]  # fmt: skip
    assert episodes == [([10.0], [20.0]), ([20.0], [40.0]), ([60.0], [120.0]), ([7.0], None)]
    (first, second) = (values for _, values in _updates(received))
    assert (first[RETURN], first[LENGTH]) == (30.0, 60.0)
    assert second[RETURN] == 7.0
    assert LENGTH not in second


def _recorded(library: str) -> list[dict[str, Any]]:
    path = Path(__file__).parent / "recorded" / f"{library}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["logged"]
    return found


def test_rl_games_has_one_update_an_epoch_on_three_axes() -> None:
    """Frames, epochs and seconds as steps of one update; its seconds are phases."""
    scalars, received = _scalars()
    for epoch, logged in enumerate(_recorded("rl_games"), 1):
        frame = 512 * epoch
        for name, value in logged.items():
            scalars.add(name, value, {"iter": epoch, "time": frame + 0.5}.get(name.rpartition("/")[2], frame))
    scalars.close()
    updates = _updates(received)

    assert [index for index, _ in updates] == [1, 2, 3, 4]
    assert updates[3][1][RETURN] == _recorded("rl_games")[3]["rewards/step"]
    assert [one.phase for one in received.of(PhaseEnded)] == ["collect", "learn"] * 4


def test_what_a_library_logs_between_updates_is_none() -> None:
    """Sample Factory's report of returns goes with the next update; its machine's numbers are of none."""
    scalars, received = _scalars()
    _add(scalars, 100, train__lr=0.1, train__kl_divergence=0.2)
    _add(scalars, 150, perf___fps=300.0, reward__reward=12.0, len__len=9.0)
    _add(scalars, 200, train__lr=0.1, train__kl_divergence=0.3)
    scalars.close()
    updates = _updates(received)

    assert [index for index, _ in updates] == [1, 2]
    assert (updates[1][1][RETURN], updates[1][1][LENGTH]) == (12.0, 9.0)
    assert [list(one.values) for one in received.of(Measured)] == [["overwatch.custom.perf/_fps"]]


def test_numbers_of_no_library_are_those_of_run_update() -> None:
    """The catalogue's names fill their rows, all others are custom."""
    scalars, received = _scalars()
    _add(scalars, 1, entropy=0.7, train__value_loss=3.0, my__loss=2.0)
    scalars.close()
    rows = {"overwatch.policy.entropy": 0.7, "overwatch.policy.value_loss": 3.0}
    assert _updates(received) == [(1, rows | {"overwatch.custom.my/loss": 2.0})]


def test_a_named_library_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By argument, or by the environment."""
    assert given_library("rl_games") is Library.RL_GAMES
    monkeypatch.setenv("OVERWATCH_LIBRARY", "skrl")
    scalars, received = _scalars()
    _add(scalars, 1, train__entropy_loss=-0.7, train__policy_gradient_loss=0.1, train__approx_kl=0.2)
    scalars.close()
    ((_, values),) = _updates(received)
    assert values["overwatch.custom.train/entropy_loss"] == -0.7


def test_a_library_that_is_none_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And guessed."""
    with caplog.at_level(logging.WARNING):
        assert given_library("cleanx") is None
    assert "no library is called 'cleanx'" in caplog.text


def test_what_is_no_number_is_left_out_and_what_is_not_finite_is_sent() -> None:
    """Texts and histograms; NaN is judged."""
    scalars, received = _scalars()
    scalars.add("losses/approx_kl", math.nan, 1)
    scalars.add("losses/note", "text", 1)
    scalars.add("losses/clipfrac", [1.0, 2.0], 1)
    scalars.close()
    ((_, values),) = _updates(received)
    assert list(values) == [KL.name]
    assert math.isnan(values[KL.name])


def test_what_cannot_start_reaches_nobody() -> None:
    """A run that raises is counted, and training goes on."""

    def broken() -> Any:
        raise OSError("no disk")

    scalars = Scalars(broken)
    scalars.add("a", 1.0, 1)
    scalars.close()
    assert scalars.failures == 1
