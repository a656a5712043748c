"""From a live run to its recording, with one key."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from overwatch import discovery
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import Player
from overwatch.feeds.recording import open_recording
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import View
from overwatch.tui import first_word, recording_of
from overwatch.tui.context import replayed
from overwatch.tui.playback import Playback
from tests import fakes
from tests.overwatch.collector.running import eventually, http, running
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.tui import ptys, scenario
from tests.overwatch.tui.pressing import Terminal


def test_r_leaves_for_the_recording_where_one_is_known() -> None:
    """The session ends asking for the replay; the live run is not touched."""
    terminal = Terminal(scenario.storm())
    terminal.session.ui.recorded = True
    terminal.press("r")

    assert terminal.session.requests.replaying
    assert terminal.session.requests.leaving


def test_the_screen_shows_first_what_could_not_be_read(tmp_path: Path) -> None:
    """The first remark, how many more there are, and nothing that moves the terminal's cursor."""
    (tmp_path / "a\x1b[2J.json").write_bytes(otlpfiles.lines([otlpfiles.logs(1)]) + b"garbage\n")
    remarks = open_input(tmp_path).remarks()
    opened = open_input(tmp_path)
    assert list(opened.recorded())
    stated = first_word(opened.remarks()) or ""

    assert not remarks
    assert "newest time" in stated
    assert "(and 1 more: overwatch replay lists all)" in stated
    assert "\x1b" not in stated
    assert first_word(()) is None


def test_a_past_that_is_still_read_is_progress_in_the_first_line() -> None:
    """Where a seek shows its own; with the past there the place stands as ever."""
    at = Playback(time=90.0, first=0.0, last=100.0, playing=False)
    link = scenario.storm().link

    assert replayed(link, replace(at, known=0.4)).text == "REPLAY reading 40%"
    assert replayed(link, replace(at, known=0.4, busy=True, part=0.7)).text == "REPLAY seeking 70%"
    assert replayed(link, at).text == "REPLAY paused"


def test_r_shows_what_to_type_where_no_recording_is_known() -> None:
    """Nobody is thrown out for a key that cannot do its work."""
    terminal = Terminal(scenario.storm())
    terminal.press("r")

    assert not terminal.session.requests.leaving
    assert "this machine has no recording of it" in terminal.lines[-1]


def test_the_recording_of_the_announced_collector_opens_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is announced, belongs to this view address alone, and plays what came so far."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    reported = [fakes.started(fakes.START_NS), fakes.policy(fakes.START_NS, index=1, entropy=0.5)]
    body = request(fakes.records(reported, fakes.ORIGIN, 1), origin_attributes(fakes.ORIGIN))
    with running(tmp_path) as service:
        service.announce()
        view = service.endpoints.view or ""
        http(f"{service.endpoints.otlp_http}/v1/logs", body, content_type="application/x-protobuf")
        folder = recording_of(view)
        assert folder == tmp_path / "otlp"
        assert recording_of("ws://127.0.0.1:1") is None
        eventually(lambda: (folder / "logs.jsonl").exists() and (folder / "logs.jsonl").stat().st_size)
        player = Player(open_recording(folder))
        player.seek(player.last)
        seen = player.look(fakes.ORIGIN.run_id, View())

    assert seen is not None
    assert seen.run.update == 1
    assert discovery.read() is None
    assert recording_of(view) is None


def test_on_a_real_terminal_r_changes_from_live_to_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live, then r, then the replay of the same run; q leaves the terminal as it was."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    reported = [fakes.started(fakes.START_NS), fakes.policy(fakes.START_NS, index=1, entropy=0.5)]
    body = request(fakes.records(reported, fakes.ORIGIN, 1), origin_attributes(fakes.ORIGIN))
    with running(tmp_path) as service:
        service.announce()
        http(f"{service.endpoints.otlp_http}/v1/logs", body, content_type="application/x-protobuf")
        command = "import sys; from overwatch.tui import run_tui; sys.exit(run_tui(sys.argv[1:], None))"
        with ptys.running([sys.executable, "-c", command, service.endpoints.view or ""]) as terminal:
            live = terminal.until("OVERWATCH", fakes.ORIGIN.run_id, "update 1 ")
            terminal.press("r")
            terminal.until("REPLAY", fakes.ORIGIN.run_id, since=live)
            terminal.press("q")

            assert terminal.exit_code() == 0
            assert ptys.in_order(terminal)
