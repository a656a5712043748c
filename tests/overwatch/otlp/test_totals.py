"""Series over time: deltas become totals, restarts and gaps begin them anew, nothing counts twice."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from overwatch.events import EnvsRemoved, Event, LogLine, RunFinished
from overwatch.journal import Signal
from overwatch.otlp import totals
from overwatch.otlp.decode import Decoded, decode
from overwatch.otlp.distribution import Distribution, Explicit
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Position, Step, Totals
from overwatch.otlp.value import Value
from tests.fakes import START_NS
from tests.overwatch.otlp.attributes import to_pairs

S = 1_000_000_000


def window(start: float, at: float, part: str = "", run: str = "r", group: str = "g") -> Position:
    """A point from `start` to `at`, in seconds."""
    return Position(run_id=run, group=group, part=part, start=int(start * S), at=int(at * S))


def added(points: list[tuple[float, float, float]]) -> list[tuple[str, float | None]]:
    """What becomes of changes sent as (start, at, change)."""
    reported = Totals()
    moved = [reported.add(window(start, at), change) for start, at, change in points]
    return [(one.step.value, one.value) for one in moved]


def watched(points: list[tuple[float, float, float]]) -> list[tuple[str, float | None]]:
    """What becomes of totals sent as (start, at, total)."""
    reported = Totals()
    moved = [reported.watch(window(start, at), total, rises=True) for start, at, total in points]
    return [(one.step.value, one.value) for one in moved]


CHANGES = {
    "windows-that-meet-add-up": ([(1, 2, 5), (2, 3, 4), (3, 4, 1)], [5, 9, 10]),
    "a-missing-start-meets-any": ([(0, 2, 5), (0, 3, 4)], [5, 9]),
    "a-millisecond-is-no-gap": ([(1, 2, 5), (2.001, 3, 4)], [5, 9]),
    "a-gap-begins-anew": ([(1, 2, 5), (3, 4, 4), (4, 5, 1)], [5, 4, 5]),
    "a-restart-begins-anew": ([(1, 2, 5), (2, 3, 4), (60, 61, 1)], [5, 9, 1]),
    "an-overlap-begins-anew": ([(1, 2, 5), (1.5, 3, 4)], [5, 4]),
    "a-point-that-comes-again-counts-once": ([(1, 2, 5), (1, 2, 5), (2, 3, 4)], [5, None, 9]),
    "an-older-point-counts-nothing": ([(1, 2, 5), (2, 3, 4), (1, 2, 7)], [5, 9, None]),
    "before-the-start-counts-nothing": ([(10, 11, 5), (1, 12, 9)], [5, None]),
    "falling-changes-are-subtracted": ([(1, 2, 5), (2, 3, -2)], [5, 3]),
}


@pytest.mark.parametrize("rule", CHANGES)
def test_changes_become_totals_by_the_rules(rule: str) -> None:
    """The rows of OTLP's delta-to-cumulative conversion."""
    points, expected = CHANGES[rule]

    assert [value for _, value in added(points)] == expected


TOTALS = {
    "a-total-is-what-it-is": ([(1, 2, 5), (1, 3, 9)], [("began", 5), ("went_on", 9)]),
    "a-new-start-is-a-reset": ([(1, 2, 5), (3, 4, 1)], [("began", 5), ("reset", 1)]),
    "a-fall-is-a-reset": ([(1, 2, 5), (1, 3, 2)], [("began", 5), ("reset", 2)]),
    "an-unknown-start-goes-on": ([(0, 2, 5), (0, 3, 6)], [("began", 5), ("went_on", 6)]),
    "a-point-that-comes-again-counts-once": ([(1, 2, 5), (1, 2, 5)], [("began", 5), ("late", None)]),
    "an-older-point-counts-nothing": ([(1, 5, 5), (1, 4, 4)], [("began", 5), ("late", None)]),
    "the-last-words-of-a-replaced-writer-count-nothing": (
        [(1, 2, 5), (3, 4, 1), (1, 3, 7)], [("began", 5), ("reset", 1), ("late", None)]
    ),
    "of-two-writers-the-newer-is-believed": (
        [(1, 5, 5), (3, 6, 1), (1, 7, 8), (3, 8, 2)],
        [("began", 5), ("overlapped", 1), ("overlapped", None), ("went_on", 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", TOTALS)
def test_totals_are_watched_by_the_rules(rule: str) -> None:
    """Resets are seen by start and by value; two writers of one series by their two starts."""
    points, expected = TOTALS[rule]

    assert watched(points) == expected


def test_two_writers_of_changes_are_noticed_once() -> None:
    """Windows of one writer never end within each other; the first that does is reported."""
    reported = Totals()
    firsts = []
    for start in range(1, 9):
        firsts.append(reported.add(window(start, start + 1), 1).first)
        firsts.append(reported.add(window(start - 0.5, start + 0.5), 1).first)

    assert firsts.count(True) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=30))
def test_every_change_counts_exactly_once(changes: list[tuple[int, str]]) -> None:
    """Whatever is sent again, in whatever order of series, a total is the sum of what was sent."""
    reported, clock, last = Totals(), {"a": 0, "b": 0}, 0.0
    for change, part in changes:
        clock[part] += 1
        point = window(clock[part], clock[part] + 1, part)
        moved = reported.add(point, change)
        again = reported.add(point, change)
        assert (again.step, again.value) == (Step.LATE, None)
        assert moved.value is not None
        last = moved.value

    assert last == sum(change for change, _ in changes)


def spread(*values: float) -> Distribution:
    """Values by one bound, 10."""
    above = sum(value > 10 for value in values)
    return Distribution(
        count=len(values), sum=sum(values), shape=Explicit((10.0,), (len(values) - above, above))
    )


def test_of_a_running_distribution_only_what_is_new_is_observed() -> None:
    """A cumulative point is taken against the one before it; one that began anew is taken whole."""
    reported = Totals()
    points = [
        (window(1, 2), spread(1, 2)), (window(1, 3), spread(1, 2, 20)), (window(1, 3), spread(1, 2, 20)),
        (window(5, 6), spread(30)), (window(5, 7), spread(30, 40)), (window(5, 8), spread(1)),
    ]  # fmt: skip
    seen = [reported.observe(point, whole, changes=False) for point, whole in points]

    assert [None if one.newest is None else one.newest.sum for one in seen] == [3, 20, None, 30, 40, 1]
    assert [one.step.value for one in seen] == ["began", "went_on", "late", "reset", "went_on", "reset"]


def test_changes_of_a_distribution_are_taken_once() -> None:
    """A delta point is what is new; one that comes again is not."""
    reported = Totals()
    points = [(window(1, 2), spread(1)), (window(1, 2), spread(1)), (window(4, 5), spread(2))]
    seen = [reported.observe(point, new, changes=True) for point, new in points]

    assert [None if one.newest is None else one.newest.sum for one in seen] == [1, None, 2]


def test_series_beyond_the_most_are_refused_and_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of series costs no memory and harms none that was there before."""
    monkeypatch.setattr(totals, "MAX_SERIES", 3)
    reported = Totals()
    steps = [reported.add(window(1, 2, str(number)), 1).step for number in range(5)]

    assert steps == [Step.BEGAN] * 3 + [Step.NO_ROOM] * 2
    assert reported.full
    assert reported.watch(window(1, 2, "x"), 7, rises=True).value == 7
    assert reported.observe(window(1, 2, "y"), spread(1), changes=True).step is Step.NO_ROOM
    assert reported.add(window(2, 3, "0"), 1).step is Step.WENT_ON


def test_runs_that_are_gone_make_room() -> None:
    """Series are kept with their run."""
    reported = Totals()
    for run in ("a", "b"):
        reported.add(window(1, 2, run=run), 1)
    reported.keep({"b"})

    assert (reported.size, set(reported.runs)) == (1, {"b"})
    reported.forget("b")
    assert reported == Totals()


def test_totals_outlive_a_restart() -> None:
    """A checkpoint holds every series, distributions among them."""
    reported = Totals()
    reported.add(window(1, 2), 5)
    reported.observe(window(1, 2, group="h"), spread(1, 20), changes=False)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(reported), type=Totals)

    assert again == reported
    assert again.add(window(2, 3), 1).value == 6


S: Final = 1_000_000_000


def stated(at_s: float, name: str, run: str = "r", **attributes: Value) -> bytes:
    """One event; underscores in the names of attributes are dots."""
    message = ExportLogsServiceRequest()
    named = message.resource_logs.add()
    named.resource.attributes.extend(to_pairs({"rl.run.id": run}))
    reported = {key.replace("_", "."): value for key, value in attributes.items()}
    named.scope_logs.add().log_records.add(
        time_unix_nano=START_NS + int(at_s * S), event_name=name, attributes=to_pairs(reported)
    )
    return message.SerializeToString()


def report(at_s: float, env_id: int, interval: Value = 10) -> bytes:
    """A report of an env."""
    ids = {"overwatch.env.id": env_id}
    return stated(
        at_s, "entity.state", entity_type="overwatch.env", entity_id=ids, entity_report_interval=interval
    )


def received(bodies: list[bytes], totals: Totals | None = None) -> list[Event]:
    """What requests come to, one after another."""
    known = totals or Totals()
    return [record.event for body in bodies for record in read(body, known).records]


def read(body: bytes, totals: Totals) -> Decoded:
    """What one request comes to."""
    return settle(decode(Signal.LOGS, body), totals)


def gone(events: list[Event]) -> list[tuple[int, list[int]]]:
    """(second, envs) of each removal."""
    return [
        ((one.at - START_NS) // S, one.env_id.array().tolist())
        for one in events
        if isinstance(one, EnvsRemoved)
    ]


def test_an_env_whose_reports_stop_is_removed() -> None:
    """Three intervals without a report, by its producer's clock, noticed when its run speaks."""
    bodies = [report(1, 7), report(1, 8), report(11, 8), stated(31, "app.logged"), stated(32, "app.logged")]

    assert gone(received(bodies)) == [(31, [7])]


def test_reports_that_come_keep_an_env() -> None:
    """Late and repeated reports end nothing."""
    bodies = [report(at, 7) for at in (1, 11, 21, 11, 31)] + [stated(60, "app.logged")]

    assert gone(received(bodies)) == []


def test_a_run_does_not_end_the_envs_of_another() -> None:
    """Each run has a clock of its own."""
    assert gone(received([report(1, 7), stated(1000, "app.logged", run="other")])) == []


def test_an_env_that_was_deleted_is_waited_for_no_longer() -> None:
    """The end that was sent is the only one; one that reports again is waited for again."""
    deleted = stated(5, "entity.delete", entity_type="overwatch.env", entity_id={"overwatch.env.id": 7})
    bodies = [report(1, 7), deleted, stated(100, "app.logged"), report(101, 7), stated(200, "app.logged")]

    assert gone(received(bodies)) == [(5, [7]), (131, [7])]


def test_an_env_without_an_interval_promises_nothing() -> None:
    """0 or nothing takes the promise back."""
    bodies = [report(1, 7), report(2, 7, interval=0), stated(1000, "app.logged")]

    assert gone(received(bodies)) == []


@pytest.mark.parametrize("interval", [-1, "10", 1.5, True, 1 << 40])
def test_an_interval_that_is_none_is_malformed(interval: Value) -> None:
    """The one record is rejected, with what is wrong."""
    decoded = read(report(1, 7, interval), Totals())

    assert (len(decoded.problems), decoded.records) == (1, ())
    assert "entity.report.interval" in decoded.problems[0].detail


def test_a_run_that_was_deleted_is_over() -> None:
    """The reason comes with it."""
    body = stated(9, "entity.delete", entity_type="overwatch.run", entity_delete_reason="budget spent")

    assert received([body]) == [RunFinished(at=START_NS + 9 * S, outcome="completed", reason="budget spent")]


@pytest.mark.parametrize("kind", ["overwatch.run", "overwatch.slot", "overwatch.gpu"])
def test_reports_of_what_is_known_otherwise_fill_no_feed(kind: str) -> None:
    """A heartbeat is no line of log; a slot's end never ends its env."""
    ids = {"overwatch.env.id": 7, "overwatch.slot.id": "r0c0"}
    names = ["entity.state"] if kind == "overwatch.run" else ["entity.state", "entity.delete"]

    assert received([stated(1, name, entity_type=kind, entity_id=ids) for name in names]) == []


@pytest.mark.parametrize("name", ["entity.state", "entity.delete"])
def test_entities_of_others_are_lines_of_the_feed(name: str) -> None:
    """What nobody here knows is shown as it came."""
    (event,) = received([stated(1, name, entity_type="host", entity_id={"host.id": "h"})])

    assert isinstance(event, LogLine)


def test_promises_are_bounded_and_outlive_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most nothing is waited for; what is, is part of a checkpoint."""
    monkeypatch.setattr("overwatch.otlp.totals.MAX_ENTITIES", 2)
    totals = Totals()
    received([report(1, env_id) for env_id in range(5)], totals)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(totals), type=Totals)

    assert (totals.entities.size, again) == (2, totals)
    assert gone(received([stated(100, "app.logged")], again)) == [(31, [0]), (31, [1])]
    assert again.entities.size == 0
