"""Counters and histograms of a process, from its calls to records."""

import threading
from collections.abc import Iterator

import pytest

import overwatch.sdk
from overwatch.catalog import Scope
from overwatch.catalog.tallies import DEFAULT_BUCKETS, MAX_NAMES
from overwatch.events import LogLine, Measured, RunFinished, Tallied, TallySeries
from overwatch.sdk.tallies import MOST_A_RECORD, Tallies
from overwatch.sdk.values import RefusedError
from tests.overwatch.sdk.sink import Sink, http_sink


class Out:
    """Where records and lines go."""

    def __init__(self, role: str = "learner") -> None:
        self.reported: list[Tallied] = []
        self.stated: dict[str, str] = {}
        self.tallies = Tallies(role, self.reported.append, self.stated.setdefault, every_s=3600.0)

    def series(self) -> list[TallySeries]:
        """What was sent since the last time."""
        self.tallies.send()
        reported, self.reported[:] = list(self.reported), []
        return [one for event in reported for one in event.series]


@pytest.fixture
def out() -> Iterator[Out]:
    """Tallies whose thread is over with the test."""
    made = Out()
    yield made
    made.tallies.close()


def test_only_what_changed_is_sent_and_all_of_it_counts_from_the_beginning(out: Out) -> None:
    """Totals are cumulative; a series that did not change is left out until everything is sent."""
    out.tallies.count("samples", 2, {"status": "ok"})
    out.tallies.count("samples", 1, {"status": "failed"})
    assert [(one.labels["status"], one.sum) for one in out.series()] == [("ok", 2.0), ("failed", 1.0)]

    out.tallies.count("samples", 3, {"status": "ok"})
    assert [(one.metric, one.labels, one.sum) for one in out.series()] == [
        ("learner.samples", {"status": "ok"}, 5.0)
    ]
    assert out.series() == []

    out.tallies.send(whole=True)
    (event,) = out.reported
    assert (event.scope, [one.sum for one in event.series]) == (Scope.LEARNER, [5.0, 1.0])


def test_nothing_that_was_counted_is_sent_too(out: Out) -> None:
    """A process that idles reports so."""
    for _ in range(2):
        out.tallies.count("samples", 0, {"status": "ok"})
        assert [one.sum for one in out.series()] == [0.0]


def test_values_lie_in_the_buckets_of_their_row(out: Out) -> None:
    """A value that is a bound lies below it; one above all bounds is in the last bucket."""
    for value in (0.001, 0.002, 400, 0.0):
        out.tallies.observe("sample_latency", value, {})

    (one,) = out.series()
    assert one.buckets is not None
    assert one.buckets.bounds[:2] == (0.001, 0.003)
    assert one.buckets.counts == (2, 1, *[0] * 10, 1)
    assert (one.count, one.sum) == (4, 400.003)


def test_a_name_that_no_row_knows_is_custom() -> None:
    """It is of the process's own scope, or the run's, and a histogram of it has the usual buckets."""
    for role, scope in (("rollouts", Scope.ROLLOUTS), ("trainer", Scope.RUN)):
        out = Out(role)
        out.tallies.observe("cooked", 0.5, {"kind": "soup"})
        out.tallies.send()
        (event,) = out.reported
        (one,) = event.series
        assert (event.scope, one.metric, one.labels) == (scope, "overwatch.custom.cooked", {"kind": "soup"})
        assert one.buckets is not None
        assert one.buckets.bounds == DEFAULT_BUCKETS
        out.tallies.close()


def test_two_spellings_of_a_row_are_one_series(out: Out) -> None:
    """A short name and a full one add to the same total."""
    out.tallies.count("samples", 1, {})
    out.tallies.count("learner.samples", 1, {})

    assert [(one.metric, one.sum) for one in out.series()] == [("learner.samples", 2.0)]


@pytest.mark.parametrize(
    ("name", "value", "use"),
    [
        ("samples", -1, "count"), ("samples", float("nan"), "count"), ("samples", "3", "count"),
        ("sample_latency", float("inf"), "observe"), ("sample_latency", 1, "count"),
        ("", 1, "count"), (None, 1, "count"), (5, 1, "observe"), ("samples", 1e16, "count"),
        ("samples", 1, "observe"), ("policy_loss", 1, "count"), ("overwatch.policy.entropy", 1, "count"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused(out: Out, name: str, value: object, use: str) -> None:
    """Neither a number that cannot be, nor a row of another kind; nothing of it is sent."""
    with pytest.raises(RefusedError):
        getattr(out.tallies, use)(name, value, {})
    assert out.series() == []


def test_a_name_is_a_counter_or_a_histogram(out: Out) -> None:
    """What a custom name was first, it stays."""
    out.tallies.count("mine", 1, {})
    with pytest.raises(RefusedError, match=r"run\.count"):
        out.tallies.observe("mine", 1, {})


def test_label_sets_beyond_the_most_are_one(out: Out) -> None:
    """The 65th label set of a name is `other`; nothing is lost of the total."""
    for n in range(100):
        out.tallies.count("samples", 1, {"status": str(n)})

    series = out.series()
    assert len(series) == 65
    assert series[-1].labels == {"status": "other"}
    assert series[-1].sum == 36.0
    assert list(out.stated) == ["sets learner.samples"]


def test_a_label_that_its_row_does_not_have_is_left_out(out: Out) -> None:
    """And stated once; of a custom name those of the page itself are."""
    out.tallies.count("samples", 1, {"status": "ok", "color": "red"})
    out.tallies.count("mine", 1, {"le": "1", "rank": "0", "why": "x"})

    assert [one.labels for one in out.series()] == [{"status": "ok"}, {"why": "x"}]
    assert len(out.stated) == 2


def test_custom_names_are_bounded(out: Out) -> None:
    """One name too many is refused, by its name."""
    for n in range(MAX_NAMES):
        out.tallies.count(f"n{n}", 1, {})
    with pytest.raises(RefusedError, match="'more'"):
        out.tallies.count("more", 1, {})
    out.tallies.count("samples", 1, {})


def test_records_are_cut(out: Out) -> None:
    """Many series are several records."""
    for n in range(MAX_NAMES):
        for kind in ("a", "b", "c"):
            out.tallies.count(f"n{n}", 1, {"kind": kind})
    out.tallies.send()

    assert [len(event.series) for event in out.reported] == [MOST_A_RECORD, 3 * MAX_NAMES - MOST_A_RECORD]


def test_threads_add_to_one_total(out: Out) -> None:
    """No count of several threads is lost."""

    def work() -> None:
        for _ in range(2000):
            out.tallies.count("samples", 1, {"status": "ok"})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out.series()[-1].sum == 8000.0


def test_a_call_does_not_wait_while_records_are_sent() -> None:
    """Sending takes as long as it takes; counting goes on meanwhile, and is sent the next time."""
    out = Out()
    sent: list[float] = []

    def send(event: Tallied) -> None:
        counting = threading.Thread(target=out.tallies.count, args=("samples", 1, {}))
        counting.start()
        counting.join(30.0)
        assert not counting.is_alive()
        sent.extend(one.sum or 0.0 for one in event.series)

    out.tallies = Tallies("learner", send, out.stated.setdefault, every_s=3600.0)
    out.tallies.count("samples", 1, {})
    out.tallies.send()
    out.tallies.send()
    assert sent == [1.0, 2.0]
    out.tallies.close()


def test_nothing_is_sent_after_the_end(out: Out) -> None:
    """The end sends everything, also what had not changed."""
    out.tallies.count("samples", 1, {})
    assert out.series()
    out.tallies.close()
    assert [one.sum for event in out.reported for one in event.series] == [1.0]
    out.tallies.count("samples", 1, {})
    out.tallies.send()
    assert len(out.reported) == 1


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def test_a_run_counts_to_the_last(sink: Sink) -> None:
    """Through a real exporter: totals are whole and come before the end; gauges are the service's."""
    run = overwatch.sdk.start(run_id="r", role="rollouts", endpoint=sink.endpoint, sample=False)
    for n in range(10):
        run.count("refused", reason="too old", env="math", length="256")
        run.observe("wait_time", n / 10)
    run.count("odd", "x")  # type: ignore[arg-type]
    run.count(None)  # type: ignore[arg-type]
    run.gauge(queue_groups=3, cooked=4)
    report = run.close(60)

    assert report.delivered
    assert (report.refused, report.dropped) == (2, {})
    newest = {one.metric: one for event in sink.events(Tallied) for one in event.series}
    refused = newest["overwatch.rollouts.refused"]
    assert refused.labels == {"env": "math", "reason": "too old", "length": "256"}
    assert refused.sum == 10.0
    assert newest["overwatch.rollouts.wait_time"].count == 10
    (gauges,) = sink.events(Measured)
    assert gauges.scope is Scope.ROLLOUTS
    assert set(gauges.values) == {"overwatch.rollouts.queue.groups", "overwatch.custom.cooked"}
    kinds = [
        type(record.event) for record in sink.records() if isinstance(record.event, Tallied | RunFinished)
    ]
    assert kinds[-1] is RunFinished
    assert {record.origin.role for record in sink.records()} == {"rollouts"}
    assert not [line for line in sink.events(LogLine) if "tallies" in line.message]


def test_a_value_may_name_the_span_in_which_it_was_observed(sink: Sink) -> None:
    """The newest of each bucket goes along; one without a span leaves it."""
    run = overwatch.sdk.start(run_id="r", role="learner", endpoint=sink.endpoint, sample=False)
    with run.span("learner.sample") as first, run.span("learner.sample") as second:
        run.observe("sample_latency", 0.02, span=first)
        run.observe("sample_latency", 0.03, span=second)
        run.observe("sample_latency", 0.03)
        run.observe("sample_latency", 5.0, span=first)
    run.close(60)
    newest = {one.metric: one for event in sink.events(Tallied) for one in event.series}
    found = newest["learner.sample_latency"]

    assert found.count == 4
    assert [(one.bucket, one.value) for one in found.samples] == [(3, 0.03), (8, 5.0)]
    assert {one.span_id for one in found.samples} == {f"{span.ref.span_id:016x}" for span in (first, second)}


def test_what_was_counted_is_sent_without_an_end(sink: Sink) -> None:
    """A thread sends it within a second or so; nobody has to call anything."""
    run = overwatch.sdk.start(run_id="r", endpoint=sink.endpoint, sample=False)
    run.count("mine", 2)
    sink.wait(lambda received: received.events(Tallied))
    (series,) = sink.events(Tallied)[0].series
    assert (series.metric, series.sum) == ("overwatch.custom.mine", 2.0)
    run.close(60)


def test_flush_sends_what_was_counted(sink: Sink) -> None:
    """What was counted before a flush has arrived after it."""
    run = overwatch.sdk.start(run_id="r", endpoint=sink.endpoint, sample=False)
    run.count("mine", 2)
    assert run.flush(60)
    assert [one.sum for event in sink.events(Tallied) for one in event.series] == [2.0]
    run.close(60)
