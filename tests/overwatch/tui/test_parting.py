"""Both returns of a run: one line below the pulse, one chart of both, nothing without a proxy."""

from collections.abc import Sequence

import msgspec
import pytest

from overwatch.snapshot import Parting, Reading, Snapshot
from overwatch.snapshot.history import Curve, History, Moment
from overwatch.tui.curve import GAP, MARK, Other, Plot, draw
from overwatch.tui.text import Role, plain, width_of
from tests.overwatch.tui import pasts, scenario
from tests.overwatch.tui.pressing import Terminal
from tests.overwatch.tui.test_curves import line, without_envs

PARTED = Parting(
    state="parted", text="the true return falls", gap=0.76, pairs=94, needed=32, way="falls",
    factors=("true return fell by 12",),
)  # fmt: skip


def _reporting(parting: Parting | None, full: Snapshot | None = None, **texts: str) -> Snapshot:
    """A run that reports these rows."""
    full = full or scenario.healthy()
    policy = {
        **full.policy,
        **{
            name: Reading(
                value=1.0, text=text, label=name.partition("_")[0], history=(0.2, 0.6, 1.0), status="ok"
            )
            for name, text in texts.items()
        },
    }
    return msgspec.structs.replace(full, policy=policy, parting=parting)


def _both(full: Snapshot | None = None) -> Snapshot:
    texts = {"food_share": "41%", "poison_share": "59%"}
    return _reporting(PARTED, full, proxy_return="+37.58", true_return="-9.44", **texts)


def _past(snapshot: Snapshot) -> History:
    """The proxy rises by thousands, the true return falls by hundredths, from the middle on."""
    known = pasts.of(snapshot)

    def curve(name: str, values: Sequence[float], text: str) -> Curve:
        base = known.curves[0]
        return msgspec.structs.replace(
            base, name=name, label=name, text=text, direction=None, best=None, best_update=None,
            low=tuple(values), high=tuple(values),
        )  # fmt: skip

    steps = range(480)
    curves = (
        curve("proxy_return", [1000.0 + 10 * n for n in steps], "+37.58"),
        curve("true_return", [0.01 * min(n, 480 - n) for n in steps], "-9.44"),
        curve("food_share", [0.7 - 0.0005 * n for n in steps], "41%"),
        curve("poison_share", [0.3 + 0.0005 * n for n in steps], "59%"),
    )
    parted = Moment(code="reward-hacking", severity="warning", since=known.moments[0].since)
    names = (*known.names, *(one.name for one in curves))
    return msgspec.structs.replace(known, names=names, curves=(*known.curves, *curves), moments=(parted,))


def _terminal(snapshot: Snapshot, size: tuple[int, int]) -> Terminal:
    terminal = Terminal(snapshot, *size)
    terminal.session.remember(_past(snapshot))
    terminal.paint()
    return terminal


@pytest.mark.parametrize("size", [(120, 40), (140, 30), (200, 60)])
def test_one_line_has_both_returns_their_gap_and_what_is_eaten(size: tuple[int, int]) -> None:
    """Below the pulse, with the finding's state in words."""
    screen = Terminal(_both(), *size).screen

    (shown,) = [text for text in screen.splitlines() if "gap +76% PARTED the true return falls" in text]
    words = ("proxy +37.58", "true -9.44", "food 41%")
    assert all(word in shown for word in words)


def test_nothing_is_shown_where_no_proxy_is_reported() -> None:
    """Neither in a run without these rows nor in one that reports what is eaten alone."""
    healthy = scenario.healthy()

    assert Terminal(healthy, 120, 40).screen == Terminal(_reporting(None), 120, 40).screen
    assert "gap" not in Terminal(_reporting(None, food_share="41%"), 120, 40).screen


@pytest.mark.parametrize(
    ("state", "text"), [("no-true-signal", "no true signal"), ("waiting", "12 of 32 updates")]
)
def test_an_abstention_has_its_reason(state: str, text: str) -> None:
    """In the line and in the chart's title."""
    snapshot = _reporting(Parting(state=state, text=text), without_envs(), proxy_return="+37.58")
    screen = Terminal(snapshot, 140, 40).screen

    assert screen.count(f"ABSTAINS {text}") == 2


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_the_chart_has_both_curves_the_gap_and_the_mark(size: tuple[int, int]) -> None:
    """The first chart of a run without envs; shares have a chart of their own where there is room."""
    terminal = _terminal(_both(without_envs()), size)
    screen = terminal.screen

    assert "─ PROXY AND TRUE RETURN " in screen
    assert GAP in screen
    assert MARK in screen
    assert ("─ EATEN " in screen) is (size[0] >= 120)
    assert "─ TRUE_RETURN " not in screen


def test_the_page_of_curves_draws_them_in_the_proxys_place() -> None:
    """Values under the cursor are those of that update; over ranks it is a chart as any other."""
    terminal = _terminal(_both(), (160, 50))
    terminal.press("c", "tab", "enter")
    assert "─ PROXY AND TRUE RETURN " in terminal.screen
    terminal.press("right", *["left"] * 50)
    assert "proxy +3" in terminal.screen.replace(",", "")
    requested = terminal.session.asks()[0][1].names
    assert {"proxy_return", "true_return", "food_share", "poison_share"} <= set(requested)


def test_the_gap_is_shaded_where_the_first_curve_is_above() -> None:
    """Not where it is below, nor where either is missing."""
    above, below = line([1.0] * 40, scale=(0.0, 1.0)), line([0.0] * 40, scale=(0.0, 1.0))
    missing = line([0.0] * 20 + [None] * 20, scale=(0.0, 1.0))

    def shaded(first: Curve, other: Curve) -> int:
        over = (Other(letter="t", curve=other, begin=0.0),)
        lines = draw(first, Plot(width=48, rows=8, begin=0.0, end=39.0, others=over, gap=True))
        assert {width_of(one) for one in lines} == {48}
        assert {span.role for one in lines for span in one if GAP in span.text} <= {Role.WARN}
        return sum(plain(one).count(GAP) for one in lines)

    assert shaded(above, below) == 40 * 5
    assert shaded(below, above) == 0
    assert 18 * 5 <= shaded(above, missing) <= 21 * 5
