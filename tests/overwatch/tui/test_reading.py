"""What a person can read: the feed's level, the trainer's log, GPUs over time, questions, help by topic."""

import msgspec
import pytest

from overwatch.catalog import Scope, of_scope
from overwatch.snapshot import FeedLine, Process, Snapshot
from overwatch.tui.actions.board import open_env
from overwatch.tui.panels.help import TOPICS
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Terminal

MOVES = ("DORMANT>GERMINATED", "gate=G0 passed=yes")
ENDS = ("BLENDING>PRUNED", "HOLDING>FOSSILIZED")


def _stated(severity: str, message: str, kind: str = "log_line") -> FeedLine:
    return FeedLine(
        time=scenario.NOW, severity=severity, subsystem="train", message=message, kind=kind,
        fields={"seed": "3"},
    )  # fmt: skip


def _storm() -> Snapshot:
    full = scenario.storm()
    more = (
        _stated("info", MOVES[0], "seed_stage_changed"), _stated("info", MOVES[1], "gate_evaluated"),
        _stated("info", "epoch 3 done"), _stated("debug", "cache miss"),
    )  # fmt: skip
    return msgspec.structs.replace(full, feed=(*full.feed, *more))


def _feed(terminal: Terminal) -> str:
    return terminal.screen.split("─ FEED")[1]


def test_the_feed_has_facts_and_warnings_until_all_of_it_is_asked_for() -> None:
    """Moves of seeds and debugging come with v, and go with it; the title has the level and the rate."""
    terminal = Terminal(_storm())
    terminal.press("l")
    assert "crashed" in _feed(terminal)
    assert "epoch 3 done" in _feed(terminal)
    assert "cache miss" not in _feed(terminal)
    assert all(end in _feed(terminal) for end in ENDS)
    assert not any(move in _feed(terminal) for move in MOVES)
    assert "facts and warnings, v all" in _feed(terminal)
    terminal.press("v")
    assert all(word in _feed(terminal) for word in (*MOVES, "cache miss", "every line, v fewer", "18/s"))
    terminal.press("v")
    assert "cache miss" not in _feed(terminal)


def test_what_is_asked_for_by_name_has_no_level() -> None:
    """Seeds, a search and an open environment show their lines whatever the level is."""
    terminal = Terminal(_storm())
    terminal.press("l", "2")
    assert MOVES[0] in _feed(terminal)
    terminal.press("2", "slash", "c", "a", "c", "h", "e", "enter")
    assert "cache miss" in _feed(terminal)
    other = Terminal(_storm())
    open_env(other.session, 9)
    other.paint()
    assert "BLENDING>PRUNED" in _feed(other)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_trainers_own_log_has_a_page(size: tuple[int, int]) -> None:
    """Newest first, all of the line under the cursor below; no line of the collector's own facts."""
    terminal = Terminal(_storm(), *size)
    terminal.press("O")
    lines = [line for line in terminal.lines if "epoch 3 done" in line or "cache miss" in line]
    assert "cache miss" in lines[0]
    assert "crashed" not in terminal.screen.split("─ LOG")[1].split("seed=3")[0].replace("error", "")
    terminal.press("j")
    assert "seed=3" in terminal.screen
    terminal.press("O")
    assert "BOARD" in terminal.screen


def test_a_run_without_a_log_shows_how_to_send_one() -> None:
    """Instead of an empty page."""
    terminal = Terminal(msgspec.structs.replace(scenario.healthy(), feed=()))
    terminal.press("O")
    assert "overwatch.sdk.logs" in terminal.screen


def test_gpus_have_a_heatmap_over_time() -> None:
    """The least utilization of each while, newest at the right; a lane without a reading is blank."""
    full = scenario.storm()
    first, second = full.system.gpus[:2]
    terminal = Terminal(full)
    for later, used in ((1, 0.05), (2, 1.0)):
        busy = msgspec.structs.replace(first, utilization=used)
        blank = msgspec.structs.replace(second, utilization=None)
        system = msgspec.structs.replace(full.system, gpus=(busy, blank))
        terminal.take(msgspec.structs.replace(full, time=full.time + later, system=system))
    terminal.press("G")
    rows = [line for line in terminal.lines if line.startswith((" gpu0 ", " gpu1 "))]
    assert len(rows) == 2
    assert rows[0].rstrip()[-2:] == "▁█"
    assert "HEATMAP GPU" in terminal.screen
    terminal.press("minus")
    terminal.press("G")
    assert "FLIGHT BOARD" in terminal.screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_the_policy_page_has_the_catalogues_question(size: tuple[int, int]) -> None:
    """Of the row under the cursor in whole, at every size."""
    requested = {row.short: row.asks for row in of_scope(Scope.POLICY)}
    terminal = Terminal(scenario.storm(), *size)
    terminal.press("P")
    assert requested["return"] in terminal.screen
    terminal.press("j")
    assert requested["kl_divergence"] in terminal.screen


@pytest.mark.parametrize("width", [80, 120])
def test_help_has_a_page_a_topic(width: int) -> None:
    """Tab goes through them and comes back; each has its number, its words whole, and the next one's name."""
    terminal = Terminal(scenario.healthy(), width, 40)
    terminal.press("question_mark")
    for place, topic in enumerate(TOPICS):
        assert f"─ {topic.title} " in terminal.lines[0]
        assert f"{place + 1} of {len(TOPICS)}" in terminal.lines[0]
        shown = " ".join(terminal.screen.split())
        assert all(" ".join(text.split()) in shown for _, text in topic.terms[:3])
        terminal.press("tab")
    assert "─ KEYS " in terminal.lines[0]


def test_help_has_no_word_about_slots_where_there_are_none() -> None:
    """On none of its pages."""
    terminal = Terminal(scenario.without_slots())
    terminal.press("question_mark")
    for _ in TOPICS:
        assert not any(word in terminal.screen.lower() for word in ("seed", "slot", "blueprint"))
        terminal.press("tab")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_one_key_shows_the_hosts_busiest_processes(size: tuple[int, int]) -> None:
    """Comparison CPU and memory; again, and they are gone; without any it is stated where they come from."""
    full = scenario.storm()
    assert full.system.host is not None
    busy = (Process(pid=4242, name="python", cpu=3.98, ram_bytes=4 * 2**30),)
    host = msgspec.structs.replace(full.system.host, processes=busy)
    system = msgspec.structs.replace(full.system, host=host)
    terminal = Terminal(msgspec.structs.replace(full, system=system), *size)
    terminal.press("B")
    assert all(word in terminal.screen for word in ("4242", "398%", "4.0G", "python", "cpu", "ram"))
    terminal.press("B")
    assert "4242" not in terminal.screen
    other = Terminal(full, *size)
    other.press("B")
    assert "no process was seen" in other.screen
