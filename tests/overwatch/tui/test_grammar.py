"""The grammar of small things: chips, sparklines, numbers, durations, words that stay whole."""

import re

import msgspec
import pytest

from overwatch.catalog import Stage
from overwatch.catalog.durations import duration
from overwatch.diagnose import Assessment, assess
from overwatch.events import Event
from overwatch.projection import project
from overwatch.snapshot import Limit, Link, Reading, Slot
from overwatch.tui import once, shot
from overwatch.tui.grammar import (
    ChipSize,
    chip,
    number,
    pairs,
    reasons,
    short,
    sparkline,
    to_ascii,
)
from overwatch.tui.panels.policy import judged
from overwatch.tui.text import cells, clean, cut_middle, left, right
from tests import fakes
from tests.overwatch.tui import scenario

BLENDING = Slot(stage="blending", glyph="◑", blueprint="conv_small", alpha=0.42, age=31, gate="G3 0.55")


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("value", "text", "short"),
    [
        (-576_451_584.0, "-576451584.000", "-576"),
        (1234.567, "+1234.567", "+1.2"),
        (12_345_678.0, "12345678.00s", "12.3"),
        (123_456.0, "12345600%", "12.3"),
        (0.94, "94%max", "94%m"),
    ],
)
def test_a_reading_keeps_its_magnitude_in_a_narrow_cell(
    value: float, text: str, short: str, *, old: bool
) -> None:
    """With a prefix instead of the digits that have no room, also where it is marked as old."""
    reading = Reading(value=value, text=text, status="ok", limit=Limit(text=">1", value=1.0))
    cell = judged(reading, old=old)[0].text

    assert len(cell) == 7
    assert "…" not in cell
    assert cell.strip().removeprefix("~").startswith(short)
    assert old or value < 1e3 or cell.rstrip("s%")[-1] in "kM"


@pytest.mark.parametrize(
    ("size", "drawn"),
    [
        (ChipSize.DOT, "◑"),
        (ChipSize.SMALL, "◑cs4"),
        (ChipSize.LABELLED, "◑r0c1 cs .42"),
        (ChipSize.FULL, "r0c1 ◑ BLENDING conv_small 0.42 age 31 G3 0.55"),
    ],
)
def test_a_chip_has_four_sizes(size: ChipSize, drawn: str) -> None:
    """One grammar, of which each size shows as much as it has room for."""
    assert chip("r0c1", BLENDING, size, {"conv_small": "cs"}).text == drawn


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_has_a_chip_of_its_own_width(stage: Stage) -> None:
    """A stage that lacks a glyph, a role or a stand-in breaks here."""
    slot = Slot(stage=stage.value, glyph=stage.glyph, blueprint="norm", alpha=1.0)

    for size in (ChipSize.DOT, ChipSize.SMALL, ChipSize.LABELLED):
        drawn = chip("r0c0", slot, size, {"norm": "nm"})
        assert cells(drawn.text) == size.value
        assert len(to_ascii(drawn.text)) == size.value


def _drawn(*values: float | None, limits: tuple[float, float] | None = None) -> str:
    return "".join(span.text for span in sparkline(values, 5, limits))


def test_a_sparkline_fills_up_to_its_limit() -> None:
    """The full block means at or past the limit, and nothing else does."""
    assert _drawn(0.0, 0.5, 0.99, 1.0, 7.0, limits=(0.0, 1.0)) == "▁▅▇██"


def test_noise_never_looks_like_drama() -> None:
    """Values within a fraction of a percent of each other draw within one step of each other."""
    assert set(_drawn(1.0, 1.001, 0.999, 1.0, 1.001)) <= {"▄", "▅"}


def test_missing_samples_are_blank_and_broken_ones_are_marked() -> None:
    """Absence, a NaN and a low value are three different things to the eye."""
    assert _drawn(0.0, None, float("nan"), limits=(0.0, 1.0)) == "  ▁ !"
    assert to_ascii(_drawn(0.0, 1.0, limits=(0.0, 1.0))) == "   _#"


@pytest.mark.parametrize(
    ("value", "spec", "width", "text"),
    [
        (0.94, ".2f", 4, "0.94"),
        (0.94, ".2f", 3, ".94"),
        (1_400_000.0, ".2f", 5, "1.40M"),
        (1_400_000.0, ".0f", 4, "1.4M"),
        (-123_456.0, "+.2f", 6, "-123k"),
        (12_345.0, ".0f", 4, "12k"),
        (float("nan"), ".2f", 4, "NaN"),
        (0.004, ".2f", 4, ".004"),
        (-0.004, "+.2f", 6, "-.004"),
        (0.0, ".2f", 4, "0.00"),
    ],
)
def test_numbers_shrink_and_are_never_cut(value: float, spec: str, width: int, text: str) -> None:
    """The format of the catalogue first, then a prefix, then an exponent."""
    assert number(value, spec, width) == text


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", range(-12, 19))
def test_a_number_keeps_its_magnitude_in_every_column(power: int, sign: int) -> None:
    """At most as wide as its column, and no other number: 0 only where it is next to nothing."""
    for value in (sign * 10.0**power, sign * 9.994 * 10.0**power):
        for width in range(4, 13):
            text = number(value, ".2f", width)
            factor = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}.get(text[-1], 1.0)
            read = float(text.rstrip("kMGTPE")) * factor

            assert len(text) <= width
            assert read == pytest.approx(value, rel=0.25, abs=0.005), text


@pytest.mark.parametrize("value", [-5.76451584e18, 9.4e15, -576_451_584.0, 1e-12])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_no_view_cuts_a_number_in_its_middle(size: tuple[int, int], value: float) -> None:
    """Whatever a program reports, on each page: a shorter number, or none."""
    events: list[Event] = [fakes.started(fakes.START_NS, n_envs=2, updates=100)]
    for update in range(1, 13):
        at = fakes.START_NS + update * fakes.SECOND
        moved = value * (1 + update / 100)
        names = ("episode_return", "kl_divergence", "value_loss", "grad_norm", "entropy")
        events.append(fakes.policy(at, update, **dict.fromkeys(names, moved)))
        events.append(fakes.envs(at, range(2), update, reward=[moved] * 2, metric=[moved] * 2))
        events.append(fakes.ended(at, range(2), [moved, -moved]))
    state = fakes.folded(events)
    judged_run = assess(state, Assessment(), state.last_stamp + fakes.SECOND // 2)
    for key in ((), ("P",), ("enter",), ("c",), ("A",), ("R",)):
        drawn = shot(lambda view: project(state, judged_run, view), "text", size, key)
        assert drawn is not None
        assert re.findall(r"\S*\d[.,]?…", drawn) == [], key


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_an_old_reading_that_fills_its_cell_is_whole(size: tuple[int, int]) -> None:
    """All of the processor is not a tenth of it, marked as old or not."""
    storm = scenario.storm()
    assert storm.system.host is not None
    host = msgspec.structs.replace(storm.system.host, cpu_utilization=1.0)
    system = msgspec.structs.replace(storm.system, host=host)
    old = msgspec.structs.replace(storm, system=system, link=Link(state="stale", data_age_s=14.0))

    row = next(line for line in once(old, "text", *size).splitlines() if line.startswith("host"))
    assert " 100%" in row


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.84, "0.84s"),
        (41, "41s"),
        (252, "4m12s"),
        (65, "1m05s"),
        (4330, "1h12m"),
        (183_600, "2d3h"),
        (600, "10m"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """Two units at most."""
    assert duration(seconds) == text


def test_short_numbers_have_three_digits() -> None:
    """With a prefix where one is needed."""
    assert [short(value) for value in (7, 31_200, 812_000, 1.43e9)] == ["7", "31.2k", "812k", "1.43G"]


def test_reasons_are_dropped_whole() -> None:
    """A reason that has no room is counted; a single one ends in an ellipsis."""
    stated = ("2 culls in 60s", "return 4.6 mad low")

    assert reasons(stated, 40) == "2 culls in 60s · return 4.6 mad low"
    assert reasons(stated, 20) == "2 culls in 60s +1"
    assert reasons(stated[1:], 12) == "return 4.6 …"


def test_pairs_go_whole_or_not_at_all() -> None:
    """What is left out is counted."""
    assert pairs(["env=9", "slot=r1c1", "reason=gate"], 20) == "env=9 slot=r1c1 +1"
    assert pairs(["env=9", "slot=r1c1"], 20) == "env=9 slot=r1c1"


def test_text_is_cut_by_cells() -> None:
    """Half a wide character becomes a space, never a wider or a narrower line."""
    assert left("漢字テスト", 6) == "漢字… "
    assert right("漢字", 5) == " 漢字"
    assert cut_middle("digits-0712-long-0712", 13) == "digits-0…0712"


def test_foreign_text_cannot_steer_the_terminal() -> None:
    """Controls, joiners, direction marks and storms of accents are gone; what is left keeps its width."""
    dirty = "a\x1b[2J\x07\u202e\u200d\ufe0f" + "e" + "\u0301" * 40 + "漢"

    shown = clean(dirty)

    assert shown == "a?[2J?e\u0301\u0301漢"
    assert cells(shown) == 9
