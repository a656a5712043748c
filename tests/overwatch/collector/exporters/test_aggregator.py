"""Runs without room are a condition of the collector, with a beginning and an end."""

import logging
from pathlib import Path

import pytest

from overwatch.aggregator import Frame
from overwatch.collector.exporters.aggregator import CLEAR_NS, PART, AggregatorConfig, Refusals
from overwatch.collector.health import Health
from overwatch.fold import FAST_NS, SLOW_NS, Fold
from overwatch.runs import Room
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.collector.running import eventually, http, running
from tests.overwatch.test_room import batch


def frames(fold: Fold, refusals: Refusals, first: int, runs: list[str]) -> Frame:
    """One frame for each run that begins, a tenth of a second apart; the last one."""
    frame = fold.advance(first, [], ())
    refusals.publish(frame)
    for place, run_id in enumerate(runs, start=1):
        tick = first + place * FAST_NS
        frame = fold.advance(tick, [batch(run_id, tick - 9, [fakes.started(tick)], 1)], ())
        refusals.publish(frame)
    return frame


def test_refused_runs_are_a_condition_until_none_is_refused_for_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Health names the setting, the log has one line where it begins and one where it ends."""
    health, fold = Health(), Fold(room=Room(runs=2))
    refusals = Refusals(health, 2)
    with caplog.at_level(logging.WARNING, "overwatch.collector"):
        frames(fold, refusals, START_NS, ["a", "b"])
        assert PART not in health.degraded

        last = frames(fold, refusals, START_NS + SLOW_NS, ["c", "d", "e"])
        assert last.tower.refused_runs == 3
        reported = health.degraded[PART]
        assert reported.startswith("3 records of new runs were refused: ")
        assert "max_runs is 2; raise exporters.aggregator.max_runs" in reported

        for tick in (last.tick + CLEAR_NS - FAST_NS, last.tick + CLEAR_NS):
            assert PART in health.degraded
            refusals.publish(fold.advance(tick, [], ()))
        assert PART not in health.degraded
    assert [line.getMessage().partition(":")[0] for line in caplog.records] == [
        f"{PART} fails",
        f"{PART} works again",
    ]


def test_a_collector_that_is_full_shows_it_on_its_page_and_in_its_metrics(tmp_path: Path) -> None:
    """With one run allowed and alive, the second one is the condition `runs`, and counted."""
    with running(tmp_path, "exporters.aggregator.max_runs=1") as service:
        for run_id in ("a", "b"):
            body = batch(run_id, 1, [fakes.started(START_NS)]).body
            url = f"{service.endpoints.otlp_http}/v1/logs"
            assert http(url, body, content_type="application/x-protobuf").status == 200
            eventually(lambda: service.context.notifier.latest and service.context.notifier.latest.snapshots)
        reported = eventually(lambda: service.context.health.degraded.get(PART))
        page = http(f"{service.endpoints.telemetry}/metrics").body.decode()

    assert "max_runs is 1" in reported
    assert "\noverwatch_tower_refused_runs_total 1" in page


def test_what_an_earlier_life_refused_is_no_condition() -> None:
    """A fold that goes on from a checkpoint brings its counts along."""
    health, fold = Health(), Fold(room=Room(runs=1))
    frames(fold, Refusals(Health(), 1), START_NS, ["a", "b"])
    frames(Fold.load(fold.dump()), Refusals(health, 1), START_NS + SLOW_NS, [])

    assert PART not in health.degraded


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("archive_runs", 0, "0 is less than 1"), ("archive_days", -1.0, "-1.0 is less than 0")],
)
def test_a_limit_of_the_archive_that_cannot_be_names_the_value_and_the_way_out(
    key: str, value: float, words: str
) -> None:
    """As shipped there is none."""
    assert getattr(AggregatorConfig(), key) is None
    with pytest.raises(ValueError, match=f"{key} {words}; leave it out to keep all"):
        AggregatorConfig(**{key: value})
