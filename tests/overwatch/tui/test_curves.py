"""Curves: what a chart must show of a past, the page of them, and the screen of a run without envs.

    python -m tests.overwatch.tui.test_curves

draws the frames anew: look at what changed before it is committed.
"""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from overwatch.snapshot import Board, Reading, Snapshot
from overwatch.snapshot.history import Curve, Line, Moment
from overwatch.tui.curve import AXIS, LIMIT, MARK, Plot, bounds, draw, round_bounds
from overwatch.tui.text import Role, plain, width_of
from tests.overwatch.tui import drawers, pasts, scenario
from tests.overwatch.tui.pressing import Terminal
from tests.overwatch.tui.test_paging import _runs

FRAMES = Path(__file__).parent / "frames" / "curves"
SIZES = ((40, 12), (60, 20), (80, 24), (120, 40), (200, 60))
DOTS = range(0x2801, 0x2900)


def line(values: Sequence[float | None], **fields: object) -> Curve:
    """A curve with a value a second."""
    reported = {"label": "x", "fmt": ".3g", "samples": len(values), "non_finite": 0, **fields}
    at = tuple(float(place) for place in range(len(values)))
    none = (None,) * len(values)
    return Curve(name="x", at=at, update=none, low=tuple(values), high=tuple(values), **reported)  # type: ignore[arg-type]


def shown(curve: Curve, width: int = 48, rows: int = 8, **fields: object) -> list[str]:
    """The chart of all of it."""
    plot = Plot(width=width, rows=rows, begin=0.0, end=max(1.0, curve.at[-1]), **fields)  # type: ignore[arg-type]
    lines = draw(curve, plot)
    assert {width_of(one) for one in lines} == {width}
    assert len(lines) == rows
    return [plain(one) for one in lines]


def dotted(text: str) -> list[int]:
    """The cells of a line that have dots, counted from the chart's left edge."""
    return [place for place, letter in enumerate(text[AXIS + 1 :]) if ord(letter) in DOTS]


@settings(deadline=None)
@given(st.integers(0, 1999))
def test_a_spike_of_one_sample_is_seen_however_long_the_run(place: int) -> None:
    """The least and the most of what falls into a cell are both drawn."""
    values = [0.0] * 2000
    values[place] = 1.0

    top = dotted(shown(line(values))[0])
    assert top
    assert abs(top[0] - round(place / 1999 * 39)) <= 1


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=1, max_size=90),
    st.integers(12, 90), st.integers(2, 9), st.booleans(), st.booleans(),
)  # fmt: skip
@example(values=[1e12, 999999999999.998], width=12, rows=2, log=True, axis=False)
def test_any_values_make_a_whole_chart(
    values: list[float | None],
    width: int,
    rows: int,
    log: bool,  # noqa: FBT001
    axis: bool,  # noqa: FBT001
) -> None:
    """Exactly the lines and cells, whatever was received."""
    shown(line(values), width, rows, log=log, axis=axis, cursor=3.0, zoomed=log)


def test_a_limit_of_zero_has_no_place_on_a_logarithmic_axis() -> None:
    """The chart is drawn from what is above zero."""
    curve = line([1.0, 3.0], limits=(Line(value=0.0, severity="critical", text=">0"),))
    assert bounds(curve, Plot(width=48, rows=8, begin=0.0, end=1.0, log=True)) == (1.0, 3.0)


def test_what_is_missing_is_a_gap() -> None:
    """No line is drawn across samples that were not finite, and none at 0."""
    chart = shown(line([1.0] * 20 + [None] * 20 + [1.0] * 20, scale=(0.0, 2.0)))
    cells = {place for text in chart[:-1] for place in dotted(text)}

    assert not cells & set(range(16, 24))
    assert {3, 30} <= cells


def test_few_samples_are_joined_over_the_whole_width() -> None:
    """Three updates make a line and not three points."""
    cells = {place for text in shown(line([0.0, 1.0, 0.5]))[:-1] for place in dotted(text)}

    assert cells == set(range(40))


@pytest.mark.parametrize("value", [0.9, 9.0, 4e5, -3.0])
def test_a_row_with_limits_has_their_scale_or_one_that_holds_its_values(value: float) -> None:
    """A limit is a dotted line of its severity where it is apart from the axis; no value is cut off."""
    limits = (
        Line(value=0.5, severity="warning", text=">.5"),
        Line(value=1.0, severity="critical", text=">1"),
    )
    curve = line([0.1] * 30 + [value], scale=(0.0, 1.0), limits=limits)
    plot = Plot(width=48, rows=9, begin=0.0, end=30.0)
    low, high = bounds(curve, plot)

    assert (low, high) == (0.0, 1.0) if 0 <= value <= 1 else low <= min(value, 0) < max(value, 1) <= high
    roles = {span.role for one in draw(curve, plot) for span in one if LIMIT in span.text}
    assert roles == {Role.WARN, Role.CRIT} if value < 9 else Role.CRIT in roles


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
@example(-5e-324, 6.0)
def test_round_bounds_hold_all_values(low: float, span: float) -> None:
    """Both ends are beyond what they bound, to a millionth of the axis, and never the same."""
    first, last = round_bounds(low, low + span)

    assert first < last
    assert first <= low + 1e-6 * (last - first)
    assert last >= low + span - 1e-6 * (last - first)


def test_bounds_only_grow_with_the_run() -> None:
    """A longer past never makes the scale narrower."""
    values = [float(place * place % 97) for place in range(60)]
    ends = [round_bounds(min(values[:n]), max(values[:n])) for n in range(1, 60)]

    assert all(b[0] <= a[0] and b[1] >= a[1] for a, b in itertools.pairwise(ends[10:]))


def test_findings_are_marked_where_they_began() -> None:
    """In the colour of their severity; the worse one where two fall into one cell."""
    moments = [
        Moment(code="a", severity="critical", since=15.0), Moment(code="b", severity="warning", since=15.0),
        Moment(code="c", severity="info", since=29.0), Moment(code="d", severity="info", since=999.0),
    ]  # fmt: skip
    drawn = draw(line([1.0] * 31), Plot(width=48, rows=6, begin=0.0, end=30.0, moments=tuple(moments)))

    marks = [span.role for span in drawn[-1] if MARK in span.text]
    assert marks == [Role.CRIT, Role.INFO]
    assert abs(plain(drawn[-1]).index(MARK) - AXIS - 1 - 20) <= 1


def test_nothing_that_is_flat_becomes_a_solid_bar() -> None:
    """A number that never changes is a line."""
    chart = shown(line([5.0] * 100))

    assert sum(bool(dotted(text)) for text in chart[:-1]) == 1


def without_envs() -> Snapshot:
    """A run that sends its policy's numbers alone."""
    full = scenario.healthy()
    run = msgspec.structs.replace(full.run, n_envs=None, slots_enabled=False, slots=())
    reported = {"kl_divergence", "entropy", "value_loss"}
    policy = {
        name: reading if name in reported else Reading(label=reading.label)
        for name, reading in full.policy.items()
    }
    policy |= {
        "return": full.policy["return"],
        "mine": Reading(value=0.3, status="ok", label="mine", text="0.3"),
    }
    return msgspec.structs.replace(
        full, run=run, policy=policy, envs=(), board=Board(), aggregates=scenario.healthy().aggregates
    )


def terminal_of(size: tuple[int, int], *, past: bool = True, snapshot: Snapshot | None = None) -> Terminal:
    """A terminal that has the past of its run."""
    terminal = Terminal(snapshot or without_envs(), *size)
    if past and terminal.session.snapshot is not None:
        terminal.session.remember(pasts.of(terminal.session.snapshot))
        terminal.paint()
    return terminal


def test_a_run_without_envs_has_a_full_screen() -> None:
    """The board's place shows curves of what was sent, and one line names what would add the board.

    Also where it announced how many envs it has and sends nothing of them.
    """
    snapshot = without_envs()
    run = msgspec.structs.replace(snapshot.run, n_envs=64)
    announced = terminal_of((120, 40), snapshot=msgspec.structs.replace(snapshot, run=run)).screen
    assert "run.envs(...)" in announced
    screen = terminal_of((120, 40)).screen

    assert "FLIGHT BOARD" not in screen
    for title in ("─ RETURN ", "─ KL ", "─ ENTROPY ", "─ VAL LOSS ", "─ MINE "):
        assert title in screen
    assert "run.envs(...)" in screen
    assert LIMIT in screen
    assert MARK in screen


def test_before_the_past_has_come_the_snapshot_stands_in() -> None:
    """A collector that gives no history draws its ten updates."""
    screen = terminal_of((120, 40), past=False).screen

    assert "─ KL " in screen
    assert any(ord(letter) in DOTS for letter in screen)


def test_a_run_with_envs_keeps_its_board() -> None:
    """Also before the first env is known, where the run announced some."""
    for snapshot in (scenario.healthy(), scenario.started()):
        assert "FLIGHT BOARD" in terminal_of((120, 40), snapshot=snapshot).screen


def test_the_page_of_curves_has_every_number() -> None:
    """Custom ones too; its pages by keyboard, one chart alone with Enter."""
    terminal = terminal_of((120, 40))
    terminal.press("c")
    for title in ("─ RETURN ", "─ KL ", "─ ENTROPY ", "─ VAL LOSS ", "─ MINE ", "─ KL RANK 1 "):
        assert title in terminal.screen
    terminal.press("tab", "enter")
    assert "─ KL " in terminal.screen
    assert "─ RETURN " not in terminal.screen
    terminal.press("enter", "c")
    assert terminal.session.ui.page is None


def test_a_pattern_leaves_the_numbers_that_pass() -> None:
    """By text within the name or with stars; a pattern that nothing passes is named."""
    terminal = terminal_of((120, 40))
    for pattern, there in (("loss", ["VAL LOSS"]), ("k*", ["KL", "KL RANK 1"])):
        terminal.press("colon")
        terminal.type(f"curves {pattern}")
        terminal.press("enter")
        titles = [name for name in ("RETURN", "KL", "ENTROPY", "VAL LOSS", "MINE", "KL RANK 1")
                  if f"─ {name} " in terminal.screen]  # fmt: skip
        assert titles == there
    terminal.press("colon")
    terminal.type("curves nothing")
    terminal.press("enter")
    assert "no number passes 'nothing'" in terminal.screen


def test_one_cursor_reads_all_charts() -> None:
    """Every title has the value and the update under it."""
    terminal = terminal_of((120, 40))
    terminal.press("c", "right", *["left"] * 50)

    assert terminal.screen.count("@239 ") >= 5
    terminal.press("left")
    assert "@239 " not in terminal.screen
    terminal.press("x")
    assert "@" not in terminal.screen.split("best")[0]


def test_zoom_shows_a_part_and_moves() -> None:
    """A tenth at the end, then earlier, then all again; the past is asked for within it."""
    terminal = terminal_of((120, 40))
    terminal.press("c", "z")
    assert "90% to 100%" in terminal.screen
    query = terminal.session.asks()[0][1]
    assert query.since is not None
    terminal.press("left_parenthesis")
    assert "85% to 95%" in terminal.screen
    terminal.press("Z")
    assert "whole run" in terminal.screen
    assert terminal.session.asks()[0][1].since is None


def test_ranks_and_marked_runs_lie_over_a_curve() -> None:
    """With a letter and their value in the title; runs are marked in their list."""
    terminal = terminal_of((120, 40), snapshot=drawers.opened())
    terminal.press("c", "o")
    assert "over them: ranks" in terminal.screen
    assert "a 0.0131" in terminal.screen
    snapshot = terminal.session.snapshot
    assert snapshot is not None
    terminal.press("o")
    assert "no run is marked" in terminal.screen
    terminal.session.ui.runs = _runs()
    terminal.press("c", "R", "k", "m")
    marked = terminal.session.ui.charts.marked
    assert len(marked) == 1
    terminal.session.remember(pasts.of(snapshot, marked[0], lift=50.0))
    terminal.press("R", "c")
    assert "over them: marked runs" in terminal.screen
    assert [run for run, _ in terminal.session.asks()] == [snapshot.run.run_id, *marked]
    assert "a +" in terminal.screen


def test_the_configuration_has_a_page() -> None:
    """Revision, environment and every setting."""
    terminal = terminal_of((120, 40))
    terminal.press("colon")
    terminal.type("config")
    terminal.press("enter")

    for word in ("4be91c2", "atlas", "target_kl", "0.015", "3e-4"):
        assert word in terminal.screen
    assert terminal.session.asks()[0][1].about


def _frames(size: tuple[int, int]) -> dict[str, str]:
    """The pictures of one size, by name, without the key line."""
    first = terminal_of(size)
    page = terminal_of(size)
    page.press("c")
    pictures = {"page": page}
    if size >= (80, 24):
        pictures["without_envs"] = first
    return {
        f"{name}-{size[0]}x{size[1]}": "\n".join(line.rstrip() for line in one.lines[:-1]) + "\n"
        for name, one in pictures.items()
    }


@pytest.mark.parametrize("size", SIZES)
def test_the_frames_are_the_drawn_ones(size: tuple[int, int]) -> None:
    """Every cell of the page of curves, and of the screen of a run without envs."""
    for name, text in _frames(size).items():
        assert text == (FRAMES / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    FRAMES.mkdir(exist_ok=True)
    for of_size in SIZES:
        for picture, cells in _frames(of_size).items():
            (FRAMES / f"{picture}.txt").write_text(cells, encoding="utf-8")
            sys.stdout.write(f"{picture}\n")
