"""The page writes numbers and times as the terminal does: function by function, value by value."""

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from overwatch.catalog import BY_NAME
from overwatch.catalog.durations import duration
from overwatch.tui import grammar
from overwatch.tui.context import Context, freshness
from overwatch.tui.panels.alarms import _since
from overwatch.tui.panels.header import _local
from overwatch.tui.panels.system import _memory
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene

CALLS = """async (calls) => {
  const format = await import("/web/format.js");
  return [Object.keys(format).filter((name) => typeof format[name] === "function"),
          calls.filter(([name]) => format[name]).map(([name, words]) => format[name](...words))];
}"""
EDGES = (
    0.0, 0.004, 0.005, 0.0049999, 0.5, 1.5, 2.5, 0.125, 0.375, 1.25, 8.35, 9.949, 9.95, 9.994, 9.995, 9.9951,
    10.5, 12.5, 59.999, 60.0, 99.949, 99.95, 100.5, 999.5, 999.95, 1000.0, 1005.0, 12_500.0, 9_995.0,
    99_950.0, 999_999.0, 1e6, 2.5e6, 1e9, 1.125e9, 1e12, 3.3e15, 1e18, 5e-324, 1e-9,
)  # fmt: skip
SPECS = sorted({row.fmt for row in BY_NAME.values()} | {".4g", ",.6g", ".2e"})
Row = tuple[str, list[Any], str]


def values(dice: random.Random, count: int = 400) -> Iterator[float]:
    """What is awkward to round, and random numbers of every size, of both signs."""
    for value in (*EDGES, *(dice.uniform(1, 10) * 10.0 ** dice.randrange(-6, 18) for _ in range(count))):
        yield from (value, -value) if value else (value,)
    yield from (dice.randrange(-4000, 4000) / 8 for _ in range(count))


def fixed(value: float, digits: int, *, signed: bool) -> str:
    """As panels of the terminal write a number; one that is not finite, by its word."""
    if not math.isfinite(value):
        return grammar.number(value, "", 0)
    return f"{value:{'+' if signed else ''}.{digits}f}"


def bars(dice: random.Random) -> Iterator[Row]:
    """Sparklines: with and without ends, with gaps, with what is not finite."""
    for _ in range(500):
        some = [
            dice.choice((None, math.nan, math.inf, 0.0)) if dice.random() < 0.1 else dice.gauss(5, 2)
            for _ in range(dice.randrange(14))
        ]
        ends = dice.choice((None, [0.0, 10.0], [10.0, 2.0], [3.0, 3.0]))
        spans = grammar.sparkline(some, 10, None if ends is None else tuple(ends))
        yield "sparkline", [some, 10, ends], "".join(span.text for span in spans)


def rows() -> Iterator[Row]:
    """Function of the page, what it is given, what the terminal writes."""
    dice = random.Random(random.random())  # noqa: S311 seeded by the session
    for value in values(dice):
        yield "short", [value], grammar.short(value)
        if abs(value) >= 1e15:  # Days are not exact any more.
            continue
        yield "duration", [value], duration(value)
        yield "duration", [value, {"coarse": True}], duration(value, coarse=True)
        yield "age", [value], grammar.age(value)
        yield "since", [value], _since(value)
        yield "memory", [abs(value), None], _memory(abs(value), None, digits=1)
        yield "memory", [abs(value), 2 * abs(value)], _memory(abs(value), 2 * abs(value), digits=1)
        if abs(value) < 1e9:
            yield "percent", [value], f"{value:.0%}"
            yield "whole", [round(value)], f"{round(value):,}"
        for digits in (0, 1, 2, 3) if abs(value) < 1e12 else ():
            for signed in (False, True):
                yield "fixed", [value, digits, {"signed": signed}], fixed(value, digits, signed=signed)
        for spec in SPECS if 1e-250 < abs(value) < 1e12 else ():
            yield "spec", [value, spec], format(value, spec)
            for width in (4, 6, 9):
                yield "formatted", [value, spec, width], grammar.number(value, spec, width)
        if abs(value) < 1e12:
            yield "number", [value, 2, 6, {"signed": True}], grammar.number(value, "+.2f", 6)
    for value in (math.nan, math.inf, -math.inf):
        yield "formatted", [value, ".2f"], grammar.number(value, ".2f", 9)
        yield "fixed", [value], fixed(value, 2, signed=False)
    for name in ("short", "duration", "age", "memory", "percent", "whole", "fixed", "clock"):
        yield name, [None], grammar.ABSENT
    yield "formatted", [None, ".2f"], grammar.ABSENT
    for _ in range(300):
        moment = dice.uniform(1.6e9, 2e9)
        for millis in (False, True):
            yield "clock", [moment, {"millis": millis}], grammar.clock(moment, UTC, millis=millis)
        yield "zoned", [moment], grammar.zoned(moment, UTC)
    ctx = Context(width=80, height=24, fresh=freshness(scenario.healthy().link, 0.0), zone=UTC)
    for _ in range(100):
        now = scenario.NOW + dice.uniform(-1e5, 1e5)
        moment = datetime.fromtimestamp(round(now + dice.uniform(-1e5, 1e5)), UTC)
        word = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        yield (
            "moments",
            [f"last {word}, from {word}", now],
            "last {0}, from {0}".format(_local(word, now, ctx)),
        )
    yield "moments", ["2026-13-41T99:99:99Z", 0.0], "2026-13-41T99:99:99Z"
    yield from bars(dice)


def test_the_page_writes_as_the_terminal_does(page_of: PageOf) -> None:
    """Thousands of values; the first that differ are shown."""
    table = list(rows())
    with Scene(scenario.healthy()).served() as url:
        page = page_of(url)
        names, written = page.evaluate(CALLS, [row[:2] for row in table])
        page.close()

    table = [row for row in table if row[0] in names]
    assert len(table) > 10_000
    differ = [(*row, got) for row, got in zip(table, written, strict=True) if row[2] != got]
    assert not differ, f"{len(differ)} differ: " + "; ".join(
        f"{name}{given} is {got!r}, the terminal's {wanted!r}" for name, given, wanted, got in differ[:12]
    )


def test_every_function_is_compared(page_of: PageOf) -> None:
    """A new one has rows here, or is no format."""
    with Scene(scenario.healthy()).served() as url:
        page = page_of(url)
        names, _ = page.evaluate(CALLS, [])
        page.close()

    assert set(names) <= {name for name, _, _ in rows()}
