"""Every line of every frame is exactly as wide as the terminal, whatever the run and its texts are."""

from dataclasses import replace
from datetime import UTC

import msgspec
import pytest
from rich.cells import cell_len

from overwatch.snapshot import Link, Run, Snapshot, Source, Verdict
from overwatch.tui.context import Context, Ui, freshness
from overwatch.tui.panels import help as help_panel
from overwatch.tui.panels import small
from overwatch.tui.playback import Mark, Playback
from overwatch.tui.prompt import FILTER, Prompt
from overwatch.tui.screen import overview
from overwatch.tui.text import Line, plain
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.pressing import Terminal

WORDS = (
    "漢字テスト",
    "🚀👩\u200d👩\u200d👧🇩🇪❤\ufe0fx",
    "e\u0301\u0302\u0303\u0304\u0305ab",
    "\x1b[31m\x07red\u202eleft\u200b",
    "[bold]x[/]",
    "a" * 300,
)


def _bare() -> Snapshot:
    return Snapshot(
        time=1.0, run=Run(run_id="r"), link=Link(state="live"), verdict=Verdict(severity="ok", text="")
    )


def _stale() -> Snapshot:
    full = scenario.storm()
    return Snapshot(
        time=full.time, run=full.run, link=Link(state="stale", data_age_s=14.0), verdict=full.verdict,
        policy=full.policy, system=full.system, board=full.board, envs=full.envs, feed=full.feed,
    )  # fmt: skip


STATES = {
    "bare": _bare(),
    "started": scenario.started(),
    "healthy": scenario.healthy(),
    "storm": scenario.storm(),
    "stale": _stale(),
    "huge": scenario.huge(),
    "lanes": scenario.huge(num_lanes=70, per_lane=16),
    "no slots": scenario.without_slots(),
    **{f"word {i}": scenario.with_word(scenario.storm(), word) for i, word in enumerate(WORDS)},
}


def _context(snapshot: Snapshot, width: int, height: int, waited_s: float = 0.0) -> Context:
    fresh = freshness(snapshot.link, waited_s)
    return Context(width=width, height=height, fresh=fresh, waited_s=waited_s, zone=UTC)


def _faults(lines: list[Line], width: int, height: int) -> list[tuple[int, str]]:
    found = [(len(lines), "lines")] if len(lines) != height else []
    for line in lines:
        text = plain(line)
        if cell_len(text) != width or not text.replace(" ", "x").isprintable():
            found.append((cell_len(text), text))
    return found


@pytest.mark.parametrize("state", STATES)
def test_every_line_is_as_wide_as_the_terminal(state: str) -> None:
    """Over widths 80 to 240 and heights 24 to 80, fresh and cut off."""
    snapshot = STATES[state]
    for place, width in enumerate(range(80, 241, 4)):
        height = 24 + (place * 11) % 57
        ctx = _context(snapshot, width, height, waited_s=7.0 * (place % 2))
        assert _faults(overview(snapshot, ctx).lines, width, height) == []


UIS = {
    "drawer": Ui(env_id=9),
    "full": Ui(env_id=9, full=True, scroll=3),
    "unknown env": Ui(env_id=999_999),
    "alarm": Ui(alarm=scenario.FINDINGS[0], scroll=99),
    "feed": Ui(feed_has_keys=True, toggles=frozenset({"errors"}), search="a" * 90, line=3),
    "prompt": Ui(prompt=Prompt(kind=FILTER, text="zzz=漢字テスト " * 12, at=70)),
    "notice": Ui(notice="漢" * 100),
    "replay": Ui(),
}
_PLAYED = Playback(
    time=50.0, first=0.0, last=100.0, playing=True, marks=(Mark(time=9.0, severity="warning"),)
)


@pytest.mark.parametrize("ui", UIS)
def test_whatever_is_open_every_line_is_as_wide_as_the_terminal(ui: str) -> None:
    """Over all states, over widths 80 to 240."""
    for place, snapshot in enumerate([*STATES.values(), drawers.opened()]):
        for width in range(80 + place, 241, 23):
            height = 24 + (width * 7) % 57
            playback = _PLAYED if ui == "replay" else None
            ctx = replace(_context(snapshot, width, height), ui=UIS[ui], cursor=9, playback=playback)
            assert _faults(overview(snapshot, ctx).lines, width, height) == []
            assert _faults(help_panel.render(snapshot, ctx), width, height) == []


@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (119, 29), (120, 30), (121, 39), (159, 59), (160, 60)]
)
def test_the_edges_of_the_layouts_hold_for_every_state(width: int, height: int) -> None:
    """Where one layout becomes another, every state still fits."""
    for snapshot in STATES.values():
        ctx = _context(snapshot, width, height)
        assert _faults(overview(snapshot, ctx).lines, width, height) == []


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 5), (20, 3), (72, 20), (79, 60), (200, 23)])
def test_a_small_terminal_gets_the_small_form(width: int, height: int) -> None:
    """Below 80 by 24 there is no traceback and no wrapped line, and the size is reported."""
    for snapshot in STATES.values():
        lines = overview(snapshot, _context(snapshot, width, height)).lines
        assert _faults(lines, width, height) == []
    if width >= 30:
        assert f"80x24 needed, {width}x{height} here" in plain(lines[-1])


@pytest.mark.parametrize(("width", "height"), [(1, 1), (60, 10), (80, 24), (120, 40), (200, 60)])
def test_the_other_screens_fit_too(width: int, height: int) -> None:
    """Help and the screen before the first run."""
    for run_id in (None, *WORDS):
        waiting = small.Waiting(
            collector="127.0.0.1:4380", state="down: connection refused", endpoint="http://127.0.0.1:4318",
            run_id=run_id, tried=tuple(f"ws://host-{number}:4380" for number in range(height)),
            unannounced="/run/user/1000/overwatch/collector.json",
        )  # fmt: skip
        ctx = _context(_bare(), width, height)
        assert _faults(small.welcome(waiting, ctx), width, height) == []
    for snapshot in (None, *STATES.values()):
        assert _faults(help_panel.render(snapshot, ctx), width, height) == []


def test_each_cause_is_on_screen_at_80_by_24() -> None:
    """The smallest full layout shows all three causes without a key."""
    text = "\n".join(
        plain(line) for line in overview(scenario.storm(), _context(scenario.storm(), 80, 24)).lines
    )

    assert "gpu1 is throttled" in text
    assert "crashed at step 88,214" in text
    assert "4 culls in 60s" in text


def test_a_clock_that_is_ahead_is_shown_beside_the_telemetry() -> None:
    """With the most of all sources, and in no frame where all clocks are right."""
    right = scenario.storm()
    sources = (*right.link.sources, Source(name="trainer 1", age_s=0.1, clock_ahead_s=42.0))
    wrong = msgspec.structs.replace(right, link=msgspec.structs.replace(right.link, sources=sources))

    def shown(snapshot: Snapshot) -> list[str]:
        lines = overview(snapshot, _context(snapshot, 140, 40)).lines
        return [text for line in lines if "telemetry lag" in (text := plain(line))]

    assert [line.rstrip().endswith("clock 42s ahead") for line in shown(wrong)] == [True]
    assert ["clock" in line for line in shown(right)] == [False]


def test_a_frame_is_the_same_whatever_was_drawn_before() -> None:
    """After another run, another width and another cursor the same snapshot gives the same frame."""
    storm, huge = scenario.storm(), scenario.huge()
    alone = [Terminal(storm, width).lines for width in (80, 120, 200)]
    for width in (200, 120, 80):
        Terminal(huge, width).press("j", "enter")
        Terminal(_stale(), width).press("l", "k")
    assert [Terminal(storm, width).lines for width in (80, 120, 200)] == alone
