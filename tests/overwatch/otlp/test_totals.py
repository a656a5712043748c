"""Series over time: deltas become totals, restarts and gaps begin them anew, nothing counts twice."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.otlp import totals
from overwatch.otlp.distribution import Distribution, Explicit
from overwatch.otlp.totals import Position, Step, Totals

S = 1_000_000_000


def window(start: float, at: float, part: str = "", run: str = "r", group: str = "g") -> Position:
    """A point from `start` to `at`, in seconds."""
    return Position(run_id=run, group=group, part=part, start=int(start * S), at=int(at * S))


def added(points: list[tuple[float, float, float]]) -> list[tuple[str, float | None]]:
    """What becomes of changes told as (start, at, change)."""
    told = Totals()
    moved = [told.add(window(start, at), change) for start, at, change in points]
    return [(one.step.value, one.value) for one in moved]


def watched(points: list[tuple[float, float, float]]) -> list[tuple[str, float | None]]:
    """What becomes of totals told as (start, at, total)."""
    told = Totals()
    moved = [told.watch(window(start, at), total, rises=True) for start, at, total in points]
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
    """Windows of one writer never end within each other; the first that does is told."""
    told = Totals()
    firsts = []
    for start in range(1, 9):
        firsts.append(told.add(window(start, start + 1), 1).first)
        firsts.append(told.add(window(start - 0.5, start + 0.5), 1).first)

    assert firsts.count(True) == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=30))
def test_every_change_counts_exactly_once(changes: list[tuple[int, str]]) -> None:
    """Whatever is sent again, in whatever order of series, a total is the sum of what was told."""
    told, clock, last = Totals(), {"a": 0, "b": 0}, 0.0
    for change, part in changes:
        clock[part] += 1
        point = window(clock[part], clock[part] + 1, part)
        moved = told.add(point, change)
        again = told.add(point, change)
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
    told = Totals()
    points = [
        (window(1, 2), spread(1, 2)), (window(1, 3), spread(1, 2, 20)), (window(1, 3), spread(1, 2, 20)),
        (window(5, 6), spread(30)), (window(5, 7), spread(30, 40)), (window(5, 8), spread(1)),
    ]  # fmt: skip
    seen = [told.observe(point, whole, changes=False) for point, whole in points]

    assert [None if one.newest is None else one.newest.sum for one in seen] == [3, 20, None, 30, 40, 1]
    assert [one.step.value for one in seen] == ["began", "went_on", "late", "reset", "went_on", "reset"]


def test_changes_of_a_distribution_are_taken_once() -> None:
    """A delta point is what is new; one that comes again is not."""
    told = Totals()
    points = [(window(1, 2), spread(1)), (window(1, 2), spread(1)), (window(4, 5), spread(2))]
    seen = [told.observe(point, new, changes=True) for point, new in points]

    assert [None if one.newest is None else one.newest.sum for one in seen] == [1, None, 2]


def test_series_beyond_the_most_are_refused_and_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of series costs no memory and harms none that was there before."""
    monkeypatch.setattr(totals, "MAX_SERIES", 3)
    told = Totals()
    steps = [told.add(window(1, 2, str(number)), 1).step for number in range(5)]

    assert steps == [Step.BEGAN] * 3 + [Step.NO_ROOM] * 2
    assert told.full
    assert told.watch(window(1, 2, "x"), 7, rises=True).value == 7
    assert told.observe(window(1, 2, "y"), spread(1), changes=True).step is Step.NO_ROOM
    assert told.add(window(2, 3, "0"), 1).step is Step.WENT_ON


def test_runs_that_are_gone_make_room() -> None:
    """Series are kept with their run."""
    told = Totals()
    for run in ("a", "b"):
        told.add(window(1, 2, run=run), 1)
    told.keep({"b"})

    assert (told.size, set(told.runs)) == (1, {"b"})
    told.forget("b")
    assert told == Totals()


def test_totals_outlive_a_restart() -> None:
    """A checkpoint holds every series, distributions among them."""
    told = Totals()
    told.add(window(1, 2), 5)
    told.observe(window(1, 2, group="h"), spread(1, 20), changes=False)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Totals)

    assert again == told
    assert again.add(window(2, 3), 1).value == 6
