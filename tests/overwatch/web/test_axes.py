"""The page's axes are the report's: the same round numbers, the same times, the same ends."""

import random

import pytest

from overwatch.analyse import page as report
from overwatch.snapshot.history import Line
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene

CALLS = """async (calls) => {
  const axes = await import("/web/axes.js");
  return calls.map(([name, words]) => axes[name](...words));
}"""


def test_ticks_and_ends_are_the_reports(page_of: PageOf) -> None:
    """For ends of every size, and for values with and without limits beside them."""
    dice = random.Random(random.random())  # noqa: S311 seeded by the session
    calls: list[tuple[str, list[object]]] = []
    wanted: list[list[float]] = []
    for _ in range(300):
        low = dice.choice((0.0, dice.gauss(0, 10.0 ** dice.randrange(-6, 7))))
        high = low + dice.random() * 10.0 ** dice.randrange(-6, 7)
        calls.append(("ticks", [low, high, 5]))
        wanted.append(report.ticks(low, high, 5))
        calls.append(("timeTicks", [abs(low), abs(low) + dice.random() * 1e5, 5]))
        wanted.append(report.time_ticks(*calls[-1][1]))  # type: ignore[arg-type]
        values = [dice.gauss(low, high - low) for _ in range(dice.randrange(250))]
        limits = [dice.gauss(low, 2 * (high - low)) for _ in range(dice.randrange(3))]
        calls.append(("fitted", [values, [{"value": one} for one in limits]]))
        lines = [Line(value=one, severity="warning", text="") for one in limits]
        wanted.append(list(report.fitted(values, lines)))
        # A row's scale holds, unless a value is beyond it.
        calls.append(("fitted", [values, calls[-1][1][1], [low, high]]))
        is_within = all(low <= one <= high for one in values)
        wanted.append([low, high] if is_within else wanted[-1])
    with Scene(scenario.healthy()).served() as url:
        page = page_of(url)
        got = page.evaluate(CALLS, calls)
        page.close()

    for call, one, other in zip(calls, got, wanted, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-300), call
