"""Moments of the past of a running collector: from what it records, or what to configure."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from overwatch.collector import Service
from overwatch.events import EnvCrashed, Event
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.snapshot import View
from tests import fakes
from tests.overwatch.collector.running import eventually, http, reported, run_started, running, update

RUN = "run-past"
SECOND = 1_000_000_000


def read(service: Service, path: str, **query: object) -> tuple[int, Any]:
    """The answer of the view API."""
    view = service.context.urls["view"].replace("ws", "http", 1)
    reply = http(f"{view}/api/v1/{path}?{urlencode(query)}")
    return reply.status, json.loads(reply.body)


def send(service: Service, events: list[Event], first_seq: int) -> None:
    """As a trainer does."""
    url = f"{service.context.urls['otlp_http']}/v1/logs"
    reply = http(url, reported(RUN, events, first_seq), content_type="application/x-protobuf")
    assert reply.status == 200


def newest(service: Service) -> Any:
    """The newest snapshot of the run, once there is one."""

    def shown() -> Any:
        status, body = read(service, "snapshot")
        return body if status == 200 else None

    return eventually(shown)


def test_a_moment_of_a_live_run_is_as_it_is_replayed(tmp_path: Path) -> None:
    """While the run goes on and after it: the same bytes that a player shows at that time."""
    with running(tmp_path) as service:
        send(service, [run_started(), update(0.01)], 1)
        eventually(lambda: newest(service)["run"]["update"] == 1)
        at = newest(service)["time"]
        send(service, [update(0.05, 2), EnvCrashed(at=time.time_ns(), env_id=3, error="boom")], 3)
        eventually(lambda: newest(service)["findings"])

        def recorded() -> Any:
            status, body = read(service, "snapshot", run=RUN, at=at)
            return body if status == 200 and body["run"]["update"] == 1 else None

        shown = eventually(recorded)
        status, past = read(service, "history", run=RUN, at=at, name="kl_divergence")
        assert (status, past["curves"][0]["samples"]) == (200, 1)
        assert read(service, "snapshot", run="other", at=at)[0] == 404
        assert read(service, "snapshot", at="soon")[0] == 400

    player = Player(Recording(tmp_path / "otlp"))
    player.seek(round(at * 10) * SECOND // 10)
    replayed = player.look(RUN, View())
    assert replayed is not None
    assert (shown["time"], shown["run"]["update"]) == (replayed.time, replayed.run.update)
    assert shown["findings"] == []


def test_the_timeline_of_a_live_run_has_its_alarms(tmp_path: Path) -> None:
    """With what they are about, since when, and that moments can be requested."""
    with running(tmp_path) as service:
        assert read(service, "timeline")[0] == 404
        send(service, [run_started(), update(0.01), EnvCrashed(at=time.time_ns(), env_id=3, error="boom")], 1)
        finding = eventually(lambda: newest(service)["findings"])[0]
        status, line = read(service, "timeline", run=RUN)
        assert (status, line["run_id"], line["live"], line["past"]) == (200, RUN, True, True)
        assert line["first"] < line["last"]
        assert line["first"] <= finding["since"] <= line["last"]
        assert [(one["code"], one["subject"], one["since"]) for one in line["marks"]] == [
            (finding["code"], "env 3", finding["since"])
        ]
        assert read(service, "timeline", run="other")[0] == 404
        assert read(service, "timeline", at=1)[0] == 400


def test_the_timeline_of_a_run_without_numbers_begins_where_it_began(tmp_path: Path) -> None:
    """Though its past holds none."""
    with running(tmp_path) as service:
        started = run_started()
        send(service, [started, EnvCrashed(at=time.time_ns(), env_id=3, error="boom")], 1)
        eventually(lambda: newest(service)["findings"])
        line = read(service, "timeline", run=RUN)[1]
        assert line["first"] == pytest.approx(started.at / SECOND, abs=1e-3)
        assert line["first"] < line["last"]


def test_the_timeline_of_a_run_that_is_over_ends_with_it(tmp_path: Path) -> None:
    """However long it is over; the last moment shows its end."""
    with running(tmp_path) as service:
        finished = fakes.finished(time.time_ns())
        send(service, [run_started(), update(0.01), finished], 1)
        eventually(lambda: newest(service)["run"]["outcome"])
        end = finished.at / SECOND
        eventually(lambda: newest(service)["time"] > end + 3)
        line = read(service, "timeline", run=RUN)[1]
        at_last = eventually(lambda: _ended_at(service, line["last"]))

        assert end <= line["last"] <= end + 2
        assert at_last["run"]["outcome"] == newest(service)["run"]["outcome"]


def _ended_at(service: Service, at: float) -> Any:
    status, body = read(service, "snapshot", run=RUN, at=at)
    return body if status == 200 and body["run"]["outcome"] else None


def test_a_collector_that_records_nothing_names_what_to_configure(tmp_path: Path) -> None:
    """The newest moment is there as ever; another one is 404."""
    pipelines = [f"service.pipelines.{name}.exporters=[aggregator]" for name in ("logs", "metrics", "traces")]
    with running(tmp_path, *pipelines) as service:
        send(service, [run_started(), update(0.01)], 1)
        at = newest(service)["time"]
        status, body = read(service, "snapshot", at=at)
        assert (status, body["parameter"]) == (404, "at")
        assert "otlp_file" in body["error"]
        assert read(service, "history", at=at)[0] == 404
        assert read(service, "timeline")[1]["past"] is False


def dense(service: Service, seconds: float = 5.0, late_ms: int = 0) -> list[int]:
    """Updates at 150 a second, more than a series has columns; when each was made, Unix nanoseconds.

    Each arrives so much later.
    """
    send(service, [run_started()], 1)
    made: list[int] = []
    while not made or made[-1] - made[0] < seconds * SECOND:
        some = [time.time_ns() - late_ms * 1_000_000 + place for place in range(15)]
        events: list[Event] = [
            fakes.policy(at, len(made) + place, kl_divergence=float(len(made) + place))
            for place, at in enumerate(some)
        ]
        send(service, events, 2 + len(made))
        made += some
        time.sleep(0.1)  # What it is about: samples that were made over some time.
    return made


def zoomed(service: Service, made: list[int]) -> tuple[Any, list[float]]:
    """The curve of a short while of a run that goes on, and the values that were measured in it."""
    since, until = made[0] + 3 * SECOND, made[0] + 4 * SECOND
    values = [float(number) for number, at in enumerate(made) if since <= at <= until]
    names = {"name": "kl_divergence", "columns": 512, "from": since / 1e9, "to": until / 1e9}
    status, past = read(service, "history", run=RUN, **names)
    assert status == 200
    return past["curves"][0], values


@pytest.mark.parametrize("late_ms", [0, 600])
def test_a_live_run_that_is_recorded_has_every_sample_of_a_short_while(tmp_path: Path, late_ms: int) -> None:
    """Once that while is over: the collector holds 512 columns of the run, its recording all samples.

    Those too that were made in it and received after it.
    """
    with running(tmp_path) as service:
        made = dense(service, late_ms=late_ms)

        def exact() -> Any:
            curve, values = zoomed(service, made)
            return (curve, values) if curve["each"] == 1 else None

        curve, values = eventually(exact)
        assert curve["low"] == curve["high"] == values
        assert curve["samples"] == len(made) > 512
        assert read(service, "history", run=RUN, name="kl_divergence")[1]["curves"][0]["each"] > 1


def test_without_a_recording_a_short_while_has_the_columns_that_are_held(tmp_path: Path) -> None:
    """And `each` names how many samples one stands for."""
    pipelines = [f"service.pipelines.{name}.exporters=[aggregator]" for name in ("logs", "metrics", "traces")]
    with running(tmp_path, *pipelines) as service:
        made = dense(service)
        eventually(lambda: newest(service)["time"] > made[0] / SECOND + 10)
        curve, values = zoomed(service, made)
        assert curve["each"] > 1
        assert len(curve["at"]) < len(values)
