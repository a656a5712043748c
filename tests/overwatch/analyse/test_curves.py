"""Curves made of snapshots hold every value that the run emitted."""

import csv
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.analyse.curves import fresh_values
from overwatch.catalog import KL
from overwatch.events import Conflated
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.analyse.reading import read_history
from tests.overwatch.feeds.recordings import Written
from tests.overwatch.simulate.runs import overwatch


@pytest.mark.parametrize("at_once", [1, 38, 200])
def test_updates_of_any_rate_are_all_exported(tmp_path: Path, at_once: int) -> None:
    """Each with its number and time, also where many come between two snapshots; those folded are counted."""
    written = Written(tmp_path / "run")
    written.start()
    written.emit(0.0, [fakes.started(START_NS)])
    for second in range(3):
        at = START_NS + second * SECOND + 1
        updates = range(second * at_once, (second + 1) * at_once)
        written.emit(
            second + 0.5, [fakes.policy(at + each, each, kl_divergence=each / 1e4) for each in updates]
        )
    folded = fakes.policy(START_NS + 4 * SECOND, 3 * at_once + 6, kl_divergence=0.5)
    written.emit(4.5, [msgspec.structs.replace(folded, conflated=Conflated(n=7, updates=7))])
    written.end(6.0)

    exported = overwatch("export", written.close(), "--to", "csv", "-o", tmp_path / "run.csv")
    rows = [
        row
        for row in csv.DictReader((tmp_path / "run.csv").read_text().splitlines())
        if row["metric"] == KL.name
    ]

    expected = [(float(each), each / 1e4) for each in range(3 * at_once)] + [(3 * at_once + 6.0, 0.5)]
    assert [(float(row["update"]), float(row["value"])) for row in rows] == expected
    assert [float(row["at"]) for row in rows] == sorted(float(row["at"]) for row in rows)
    assert f"6 of {3 * at_once + 7} updates are folded" in exported.output


def test_a_value_that_was_not_finite_is_a_gap(tmp_path: Path) -> None:
    """NaN in the curve, at its update."""
    written = Written(tmp_path)
    written.start()
    written.emit(0.0, [fakes.started(START_NS)])
    for second in range(1, 6):
        at = START_NS + second * SECOND
        kl = math.nan if second == 3 else 0.01
        written.emit(second + 0.05, [fakes.policy(at, second, kl_divergence=kl)])
    written.end(7.0)

    curve = read_history(written.close()).curves.policy[KL.short]

    assert [math.isnan(value) for value in curve.value] == [False, False, True, False, False]
    assert list(curve.update) == [1, 2, 3, 4, 5]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 2).map(float)), min_size=1, max_size=40),
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
)
def test_values_between_two_histories_are_counted(values: list[float | None], hops: list[int]) -> None:
    """However alike they are, where the number of updates shows how many there were."""
    reported: list[float | None] = []
    before: tuple[float | None, ...] = ()
    place = 0
    for hop in hops:
        place = min(len(values), place + hop)
        now = tuple(values[max(0, place - 10) : place])
        likely = min(hop, place - len(reported))
        if likely == 0:
            break
        fresh = fresh_values(before, now, likely)
        reported += now[len(now) - fresh :]
        before = now

    assert reported == values[:place]
