"""The past of a run: whole at any length, bounded, the same after a restart."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.catalog.machine import UTILIZATION
from overwatch.events import Column, Measured, Record
from overwatch.fold import FAST_NS, SLOW_NS, Fold
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.projection.history import history
from overwatch.snapshot.history import MOST_CURVES, Ask, Curve, History
from overwatch.state import apply, new_run
from overwatch.state.past import COLUMNS, MAX_MARKS, MOST, Line, Mark, Past
from overwatch.state.run import RunState
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

SAMPLES = st.lists(
    st.one_of(st.floats(-1e300, 1e300), st.just(math.nan)), min_size=1, max_size=3 * COLUMNS + 7
)


def told(events: Sequence[Measured]) -> tuple[RunState, Past]:
    """A run that received these."""
    records = [Record(origin=ORIGIN, seq=seq + 1, event=event) for seq, event in enumerate(events)]
    state, past = new_run(records[0]), Past()
    for record in records:
        if apply(state, record, record.event.at):
            past.take(state, record, record.event.at)
    return state, past


def curve(found: History | None, name: str) -> Curve:
    """A number of an answer."""
    assert found is not None
    return next(one for one in found.curves if one.name == name)


@settings(deadline=None, max_examples=30)
@given(SAMPLES)
def test_a_line_reaches_from_the_first_sample_to_the_newest(values: list[float]) -> None:
    """Every column is the least and the most of its own samples, and no sample is in none."""
    line = Line(1)
    for place, value in enumerate(values):
        line.take(place + 1, place, value, value)

    each = line.per
    parts = [values[begin : begin + each] for begin in range(0, len(values), each)]
    assert len(parts) == len(line.at) <= COLUMNS
    for part, low, high in zip(parts, line.low, line.high, strict=True):
        finite = [value for value in part if math.isfinite(value)]
        assert (
            (math.isnan(low) and math.isnan(high))
            if not finite
            else (low, high) == (min(finite), max(finite))
        )
    assert line.index[-1] == len(values) - 1
    assert line.blank == sum(map(math.isnan, values))


def test_a_number_beyond_the_most_is_counted_and_harms_none() -> None:
    """The first numbers keep their past, the others are named."""
    past = Past()
    for at in (1, 2):
        for place in range(MOST["number"] + 3):
            past.add(f"overwatch.custom.x{place}", at, (1.0, 1.0), None)

    assert len(past.lines) == MOST["number"]
    assert all(line.samples == 2 for line in past.lines.values())
    assert past.cut == {f"overwatch.custom.x{MOST['number'] + more}": 2 for more in range(3)}


def test_numbers_of_every_kind_have_a_past() -> None:
    """Policy rows, custom ones, what is derived of them, ranks that do not lead, lanes and hosts."""
    state = new_run(Record(origin=ORIGIN, seq=1, event=fakes.policy(START_NS, 0, entropy=0.5)))
    past, gpu = Past(), Column.of_labels(["gpu0"])
    machine = {UTILIZATION.name: Column.of([0.5])}
    for update in range(8):
        at = START_NS + update * SECOND
        events = [
            (0, fakes.policy(at, update, kl_divergence=0.01 * update, mine=update)),
            (1, fakes.policy(at, update, kl_divergence=0.02)),
            (0, Measured(at=at, scope=fakes.Scope.GPU, keys={"gpu_id": gpu}, values=machine)),
        ]
        for place, (rank, event) in enumerate(events):
            origin = fakes.Origin(run_id="run-1", epoch=f"e{rank}", rank=rank, ours=True)
            record = Record(origin=origin, seq=3 * update + place + 1, event=event)
            assert apply(state, record, at)
            past.take(state, record, at)

    found = history(state, past, Ask())
    assert {"kl_divergence", "policy_drift_rate", "trust_region_health", "mine", "kl_divergence#1",
            "gpu/gpu0/utilization"} <= set(found.names)  # fmt: skip
    assert curve(found, "kl_divergence").high == tuple(0.01 * update for update in range(8))
    assert curve(found, "kl_divergence").update == tuple(range(8))
    assert [line.severity for line in curve(found, "kl_divergence").limits] == ["warning", "critical"]
    assert curve(found, "kl_divergence#1").high == (0.02,) * 8
    assert curve(found, "gpu/gpu0/utilization").high == (0.5,) * 8


def test_what_was_not_finite_is_missing_and_counted() -> None:
    """A column of no finite value is absent, never 0."""
    state, past = told([fakes.policy(START_NS + at, at, value_loss=value)
                        for at, value in enumerate((1.0, math.nan, math.inf, 2.0))])  # fmt: skip

    shown = curve(history(state, past, Ask()), "value_loss")
    assert (shown.low, shown.high) == ((1.0, None, None, 2.0),) * 2
    assert (shown.samples, shown.non_finite) == (4, 2)


@pytest.mark.parametrize("columns", [1, 7, 64, 512])
def test_an_answer_has_at_most_the_asked_columns_and_all_extremes(columns: int) -> None:
    """However few columns there are, the least and the most of the whole run are in them."""
    rng = np.random.default_rng(columns)
    values = rng.normal(size=1300).tolist()
    state, past = told(
        [fakes.policy(START_NS + at, at, entropy_coef=value) for at, value in enumerate(values)]
    )

    shown = curve(history(state, past, Ask(columns=columns)), "entropy_coef")
    assert len(shown.at) <= columns
    lows, highs = (
        [one for one in shown.low if one is not None],
        [one for one in shown.high if one is not None],
    )
    assert (min(lows), max(highs)) == (min(values), max(values))
    assert shown.update[-1] == 1299


def test_an_answer_is_of_the_asked_time_and_names() -> None:
    """Columns outside of it are left out; names that are beyond one answer are listed."""
    many = {f"c{place}": 1.0 for place in range(90)}
    state, past = told(
        [fakes.policy(START_NS + at * SECOND, at, kl_divergence=0.01, **many) for at in range(10)]
    )

    begin = START_NS / 1e9
    part = history(state, past, Ask(names=("kl_divergence",), since=begin + 3, until=begin + 6))
    assert [one.name for one in part.curves] == ["kl_divergence"]
    assert part.curves[0].update == (3, 4, 5, 6)
    every = history(state, past, Ask(names=("c*",)))
    assert len(every.curves) == MOST_CURVES
    assert len(every.left_out) == len([name for name in every.names if name.startswith("c")]) - MOST_CURVES


def test_findings_are_marked_once_and_the_oldest_go() -> None:
    """A finding that clears is the same mark; beyond the most the older ones are counted."""
    past = Past()
    for at in range(MAX_MARKS + 2):
        past.mark("x:run:", Mark(code="x", severity="warning", scope="run", subject=None, since=at))
    past.mark(
        "x:run:",
        Mark(
            code="x", severity="warning", scope="run", subject=None, since=MAX_MARKS, cleared_at=MAX_MARKS + 9
        ),
    )

    assert len(past.marks) == MAX_MARKS
    assert past.marks_left == 2
    assert past.marks["x:run:", MAX_MARKS].cleared_at == MAX_MARKS + 9


def test_a_restart_goes_on_with_the_past() -> None:
    """A fold of a checkpoint answers as the one that went on; what comes again is not counted twice."""

    def batch(update: int) -> Batch:
        at = START_NS + update * SLOW_NS
        event = fakes.policy(at, update, kl_divergence=0.5, entropy=0.01)
        body = request(fakes.records([event], first_seq=update + 1), {})
        return Batch(sequence=update, stamp=at, signal=Signal.LOGS, body=body)

    whole = Fold()
    for update in range(30):
        whole.take(START_NS + update * SLOW_NS + FAST_NS, [batch(update)])
        if update == 17:
            again = Fold.load(whole.dump())
        elif update > 17:
            again.take(START_NS + update * SLOW_NS + FAST_NS, [batch(update), batch(update)])

    asked = Ask(about=True)
    assert again.history("run-1", asked) == whole.history("run-1", asked)
    found = whole.history(None, asked)
    assert curve(found, "kl_divergence").samples == 30
    assert found is not None
    assert {moment.code for moment in found.moments} == {"policy-collapse"}
    assert whole.history("other", asked) is None


def test_a_past_takes_of_the_room() -> None:
    """What a run remembers of its numbers is part of its cost."""
    _, past = told([fakes.policy(START_NS + at, at, kl_divergence=0.01) for at in range(100)])

    assert past.size >= sum(8 * 4 * len(line.at) for line in past.lines.values()) > 0
    assert Past.load(past.dump()) == past
