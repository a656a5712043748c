"""Where `:seek` goes: what a person may write as a place in a recording."""

from datetime import datetime

import pytest

from overwatch.tui.playback import Playback, named, when
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Deck, Terminal

FIRST = datetime(2026, 7, 12, 12, 40).astimezone().timestamp()
HALF = Playback(time=FIRST + 60, first=FIRST, last=FIRST + 1800, playing=False)
LONG = Playback(time=FIRST + 60, first=FIRST, last=FIRST + 8 * 3600, playing=False)


@pytest.mark.parametrize(
    ("text", "playback", "offset"),
    [
        ("84", HALF, 84.0), ("84.5", HALF, 84.5), ("90s", HALF, 90.0), ("1:24", HALF, 84.0),
        ("29:59", HALF, 1799.0), ("0:00", HALF, 0.0), ("95%", HALF, 1710.0), ("+30", HALF, 90.0),
        ("-5m", HALF, 0.0), ("-30s", HALF, 30.0), ("9999", HALF, 1800.0), ("12:41:07", HALF, 67.0),
        ("12:50", HALF, 770.0), ("12:55", LONG, 775.0), ("59:00", LONG, 3540.0), ("1:24:00", LONG, 5040.0),
        ("13:00:00", LONG, 1200.0), ("20:30:00", LONG, 28200.0),
    ],
)  # fmt: skip
def test_a_place_is_read_as_a_person_means_it(text: str, playback: Playback, offset: float) -> None:
    """Seconds, minutes and shares from the begin, steps from here, times of day where they are in it."""
    assert when(text, playback) - FIRST == pytest.approx(offset)


@pytest.mark.parametrize("text", ["45:00", "3:10:00", "25:00:00", "1:75", "04:10:00"])
def test_a_time_outside_of_the_recording_names_its_length(text: str) -> None:
    """So that the user knows what to write instead."""
    with pytest.raises(ValueError, match=f"^{text} is not in this recording, which is 30m0?0?s? ?long"):
        when(text, HALF)


@pytest.mark.parametrize("text", ["", "soon", "1:2", "@84x", "+40%", "12:41:07:09", "nan", "1e3"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    """The message has the text, and what can be written."""
    with pytest.raises(ValueError, match="is no place; write 84, 1:24, 12:41:07"):
        when(text, HALF)


@pytest.mark.parametrize("text", ["update 40", "@update 40", " @update  40 "])
def test_an_update_is_a_place_with_an_at_and_without(text: str) -> None:
    """Both are the same."""
    assert named(text) == ("update", "40")


def test_escape_cancels_a_seek_before_it_closes_anything() -> None:
    """Once; without a seek under way it goes back as ever."""
    deck = Deck()
    terminal = Terminal(scenario.storm(), transport=deck)
    terminal.press("A")
    deck.playback = Playback(time=50.0, first=0.0, last=100.0, playing=False, busy=True, part=0.4)
    terminal.press("escape")
    assert ("cancel", 0.0) in deck.reported
    assert terminal.session.ui.page is not None
    deck.playback = Playback(time=50.0, first=0.0, last=100.0, playing=False)
    terminal.press("escape")
    assert terminal.session.ui.page is None


def test_a_seek_under_way_shows_how_far_it_is_and_how_to_stop_it() -> None:
    """In the first line the part that is done, in the second the key."""
    deck = Deck()
    deck.playback = Playback(time=50.0, first=0.0, last=100.0, playing=False, busy=True, part=0.4)
    for size in ((120, 40), (80, 24)):
        lines = Terminal(scenario.storm(), *size, transport=deck).lines
        assert "seeking 40%" in lines[0]
        assert "Esc cancels" in lines[1]
