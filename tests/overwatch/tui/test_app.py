"""The application under Textual's pilot: every key, the cursor, what it shows when nothing comes any more."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec
import pytest
from textual.pilot import Pilot

from overwatch.feeds import Connection
from overwatch.feeds.live import AckError, Listed, Update
from overwatch.snapshot import RunLine, Snapshot, View
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.tui.actions import pages
from overwatch.tui.app import OverwatchApp
from overwatch.tui.commands import ACTIONS, press
from overwatch.tui.keys import KEYS, Arg, Mode, known
from overwatch.tui.session import Session
from overwatch.tui.text import plain
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.pressing import Deck

DEADLINE_S = 10
Steps = Callable[[Pilot[int], "Desk"], Awaitable[None]]


class Desk:
    """A feed that a test holds in its hand."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.connection = Connection(state="connecting")
        self.waited_s: float | None = None
        self.views: list[View] = []
        self.listed: tuple[Listed, ...] = ()
        self.gone: list[Listed] = []
        self.acknowledged: list[tuple[str, str]] = []
        self.refusal: str | None = None
        self._queue: asyncio.Queue[Update] = asyncio.Queue()

    @property
    def age_s(self) -> float | None:
        """As given by the test."""
        return self.waited_s

    def select(self, view: View) -> None:
        """What the app asks for."""
        self.views.append(view)

    async def runs(self) -> tuple[Listed, ...]:
        """As given by the test."""
        return self.listed

    def go(self, listed: Listed) -> None:
        """What the app chooses."""
        self.gone.append(listed)

    async def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """None."""

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """What the app acknowledges."""
        if self.refusal is not None:
            raise AckError(self.refusal)
        self.acknowledged.append((finding_id, run_id))

    async def updates(self) -> AsyncGenerator[Update, None]:
        """What the test puts in."""
        while True:
            yield await self._queue.get()

    def emit(self, update: Update) -> None:
        """The next update."""
        if isinstance(update, Connection):
            self.connection = update
        self._queue.put_nowait(update)


class Beside:
    """A program beside the screen."""

    def __init__(self) -> None:
        self.ended: str | None = None
        self.interrupted = 0
        self.printed = ["episode 1\repisode 2", "Traceback \x1b[31m!"]

    def interrupt(self) -> str:
        """Ctrl-C."""
        self.interrupted += 1
        return "SIGINT sent"

    def new_lines(self) -> list[str]:
        """Its console."""
        lines, self.printed = self.printed, []
        return lines


def _run(
    steps: Steps,
    size: tuple[int, int] = (120, 40),
    deadline_s: float = DEADLINE_S,
    attended: Beside | None = None,
) -> int | None:
    """Run the app, take the steps, return its result."""

    async def session() -> int | None:
        desk = Desk()
        app = OverwatchApp(desk, "ws://127.0.0.1:4380", attended=attended)
        async with asyncio.timeout(deadline_s), app.run_test(size=size) as pilot:
            await steps(pilot, desk)
        return app.return_value

    return asyncio.run(session())


def _screen(pilot: Pilot[int]) -> str:
    app = pilot.app
    assert isinstance(app, OverwatchApp)
    return "\n".join(plain(line) for line in app.canvas.lines)


async def _shows(pilot: Pilot[int], *words: str) -> str:
    """Wait until all words are on the screen."""
    while not all(word in _screen(pilot) for word in words):
        await pilot.pause(0.01)
    return _screen(pilot)


def _under_cursor(pilot: Pilot[int]) -> int:
    line = next(line for line in _screen(pilot).split("\n") if line.startswith("> "))
    return int(line[1:].split()[0])


async def _opened(pilot: Pilot[int], desk: Desk, snapshot: Snapshot | None = None) -> None:
    desk.emit(Connection(state="up"))
    desk.emit(snapshot or scenario.storm())
    await _shows(pilot, "FLIGHT BOARD", "LIVE")


def test_before_the_first_run_it_shows_what_to_do() -> None:
    """No run yet: how to send, and where to."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        desk.emit(Connection(state="up"))
        await _shows(pilot, "no run yet", "collector 127.0.0.1:4380 up", "overwatch demo")
        desk.emit(Connection(state="down", reason="connection refused"))
        text = await _shows(pilot, "down: connection refused", "No collector answers", "overwatch collect")
        assert re.search(r"Tried: +ws://127\.0\.0\.1:4380 ", text)
        assert "none is announced in" in text
        desk.emit(Connection(state="up"))
        await _shows(pilot, "collector 127.0.0.1:4380 up")
        assert "Tried" not in _screen(pilot)

    _run(steps)


@pytest.mark.parametrize(("down", "up"), [("j", "k"), ("down", "up")])
def test_j_and_k_move_the_cursor_over_the_rows_in_sight(down: str, up: str) -> None:
    """Across lanes, and no further than the ends."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        assert _under_cursor(pilot) == 17
        await pilot.press(down, down, down)
        assert _under_cursor(pilot) == 9
        await pilot.press(up)
        assert _under_cursor(pilot) == 6
        await pilot.press(*[up] * 9)
        assert _under_cursor(pilot) == 17

    _run(steps)


def test_the_cursor_goes_on_into_what_the_last_lane_hides() -> None:
    """The worst rows stay in sight above it."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press(*["j"] * 12)
        screen = _screen(pilot)
        assert _under_cursor(pilot) >= 200
        assert "9 DEGRADED" in screen
        assert "26 more OK" in screen

    _run(steps)


def test_the_cursor_stays_on_its_env_when_the_rows_are_sorted_anew() -> None:
    """It is on an env and not on a row; when the env has left, it is on the nearest row."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        full = scenario.storm()
        await _opened(pilot, desk, full)
        await pilot.press("j", "j", "j", "j")
        assert _under_cursor(pilot) == 12
        swapped = list(full.envs)
        swapped[32], swapped[33] = swapped[33], swapped[32]
        desk.emit(msgspec.structs.replace(full, envs=tuple(swapped), feed_rate=1.0))
        await _shows(pilot, "following · 1/s")
        assert _under_cursor(pilot) == 12
        gone = tuple(env for env in swapped if env.env_id != 12)
        desk.emit(msgspec.structs.replace(full, envs=gone, feed_rate=2.0))
        await _shows(pilot, "following · 2/s")
        assert _under_cursor(pilot) == 30

    _run(steps)


def test_g_lets_go_of_the_cursor() -> None:
    """It lies on the worst env again."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press("j", "j", "g")
        assert _under_cursor(pilot) == 17
        await pilot.press("j", "home")
        assert _under_cursor(pilot) == 17

    _run(steps)


@pytest.mark.parametrize("opens", ["question_mark", "f1"])
@pytest.mark.parametrize("closes", ["question_mark", "escape"])
def test_help_shows_every_key_and_the_stages(opens: str, closes: str) -> None:
    """It is made from the key table and the catalogue, and it closes."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press(opens)
        screen = await _shows(pilot, "KEYS", "Board and everywhere", "filter the environments")
        assert "now: sort anomaly, falling" in screen
        await pilot.press("pagedown", "pagedown")
        await _shows(pilot, "watch this run")
        await pilot.press("tab")
        await _shows(pilot, "FILTER AND MARKS", "◑ BLENDING")
        await pilot.press(closes)
        await _shows(pilot, "FLIGHT BOARD")

    _run(steps)


def test_ctrl_c_is_for_the_program_beside_while_it_runs() -> None:
    """Then the screen stays with how it ended, until the user leaves."""
    beside = Beside()

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press("ctrl+c")
        await _shows(pilot, "SIGINT sent")
        beside.ended = "train.py ended with status 3"
        await _shows(pilot, "train.py ended with status 3", "q leaves")
        await pilot.press("O")
        assert "\x1b" not in await _shows(pilot, "console", "episode 2", "Traceback")
        await pilot.press("q")

    assert _run(steps, attended=beside) == 0
    assert beside.interrupted == 1


@pytest.mark.parametrize("before", ["question_mark", "slash", "l"])
@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
def test_q_quits_with_success_and_ctrl_c_as_interrupted(before: str, key: str, code: int) -> None:
    """From help, from a prompt, where q is a letter, and from the feed."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press(before, *(("escape",) if (before, key) == ("slash", "q") else ()), key)

    assert _run(steps) == code


_INTO: dict[Mode, tuple[str, ...]] = {
    Mode.BOARD: (),
    Mode.FEED: ("l",),
    Mode.DRAWER: ("enter",),
    Mode.FULL: ("enter", "f"),
    Mode.RUNS: ("R",),
    Mode.FINDINGS: ("A",),
    Mode.POLICY: ("P",),
    Mode.COMPARE: (),
    Mode.CURVES: ("c",),
    Mode.CONFIG: (),
    Mode.LOGS: ("O",),
    Mode.HELP: ("question_mark",),
}


_ELSEWHERE = ("leave", "suspend", "replay")
"""Keys that end or stop the application; tested on their own."""


def test_every_key_has_an_action_and_every_action_a_key() -> None:
    """A row of one table without one of the other would do nothing."""
    assert {key.action for key in KEYS} == set(ACTIONS)


@pytest.mark.parametrize("replay", [False, True])
def test_every_key_reaches_its_action(replay: bool) -> None:  # noqa: FBT001
    """In every mode of the table, and once through Textual: nothing else takes a key away."""
    seen: list[str] = []

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        app = pilot.app
        assert isinstance(app, OverwatchApp)
        app.session.transport = Deck() if replay else None
        table = [key for key in known(slots=True, replay=replay) if key.action not in _ELSEWHERE]
        for key, mode in [(one, mode) for one in table for mode in one.modes]:
            _fresh(app, mode)
            assert app.session.mode is mode, (key, mode)
            _spy(key.action, seen)
            if mode is key.modes[0]:
                await pilot.press(key.names[-1])
                while not seen:
                    await pilot.pause(0.01)
            else:
                press(app.session, key.names[0], None, 0.0)
            assert seen == [key.action], (key.names, mode)
            seen.clear()

    _run(steps, deadline_s=120)


def _fresh(app: OverwatchApp, mode: Mode) -> None:
    """The overview without prompt, folds, filters and maps, then into the mode."""
    session = app.session
    if session.mode is Mode.PROMPT:
        press(session, "escape", None, 0.0)
    session.ui.heat_of, session.ui.folds, session.ui.search = None, {}, ""
    session.board.filter_by("")
    pages.home(session)
    app.paint()
    if mode is Mode.COMPARE:
        session.compare_with(drawers.BOTH)
    if mode is Mode.CONFIG:
        pages.toggle(session, "config")
    for name in _INTO[mode]:
        press(session, name, None, 0.0)


def _spy(action: str, seen: list[str]) -> None:
    """Note the next call of an action, and let it happen."""
    real = ACTIONS[action]

    def noting(session: Session, arg: Arg) -> None:
        seen.append(action)
        ACTIONS[action] = real
        real(session, arg)

    ACTIONS[action] = noting


def test_the_view_follows_what_is_opened_sorted_and_typed() -> None:
    """The feed is asked for what the screen needs; typing asks once it rests."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press("enter")
        assert desk.views[-1].env_id == 17
        await pilot.press("escape", "s")
        assert (desk.views[-1].sort, desk.views[-1].env_id) == ("env", None)
        await pilot.press("slash", *"gpu", "equals_sign", "0")
        while desk.views[-1].filter != "gpu=0":
            await pilot.pause(0.01)
        await pilot.press("escape")
        assert desk.views[-1].filter == ""
        await pilot.resize_terminal(80, 24)
        while desk.views[-1].grouped:
            await pilot.pause(0.01)

    _run(steps)


def test_a_refused_view_is_shown_on_the_key_line() -> None:
    """The board stays; the next key takes the notice away."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        desk.emit(Connection(state="up", reason="view refused with HTTP 503"))
        await _shows(pilot, "view refused with HTTP 503", "FLIGHT BOARD")
        await pilot.press("j")
        assert "view refused" not in _screen(pilot)

    _run(steps)


def test_silence_is_counted_here_and_shown() -> None:
    """When nothing arrives the screen stays, states how old it is, and marks its values."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        desk.waited_s = 3.0
        desk.emit(Connection(state="up"))
        await _shows(pilot, "SLOW 3.3s")
        desk.waited_s = 14.0
        desk.emit(Connection(state="down", reason="gone"))
        screen = await _shows(pilot, "STALE 14s", "everything below is 14s old", "reconnecting")
        assert "~64°C" in screen
        assert "~0.71" in screen
        desk.waited_s = 0.0
        desk.emit(scenario.storm())
        await _shows(pilot, "LIVE 0.3s", "gpu1 is throttled")

    _run(steps)


def test_markup_in_telemetry_is_text() -> None:
    """Brackets are shown as they came."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        for word in ("[bold]x[/]", "[@click=app.bell]y[/]", "[/"):
            desk.emit(scenario.with_word(scenario.storm(), word))
            await _shows(pilot, f" OVERWATCH  {word}")

    _run(steps)


def test_any_size_is_painted() -> None:
    """A terminal that is resized, down to one cell and back, is filled each time."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        for width, height in ((1, 1), (72, 20), (80, 24), (200, 60), (120, 40)):
            await pilot.resize_terminal(width, height)
            while len(_screen(pilot).split("\n")) != height:
                await pilot.pause(0.01)
            assert {len(line) for line in _screen(pilot).split("\n")} == {width}

    _run(steps)


def test_render_times_are_measured_here() -> None:
    """The header shows the last and the mean time of this terminal."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk, msgspec.structs.replace(scenario.storm(), timing=None))
        await _shows(pilot, "paint ", " ms")

    _run(steps)


def test_the_list_of_runs_is_asked_for_and_the_chosen_one_is_gone_to() -> None:
    """While it is open once a second; before the first snapshot too."""
    reported = {"newest": True, "state": "live", "severity": "ok", "text": "all well", "time": 1.0}
    ant = Listed(
        collector="ws://127.0.0.1:4380", run=msgspec.convert({"run_id": "ant-3", **reported}, RunLine)
    )

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press("R")
        await _shows(pilot, "RUNS", "asking the collector")
        desk.listed = (ant,)
        await _shows(pilot, "ant-3", "all well")
        await pilot.press("enter")
        assert desk.gone == [ant]
        await _shows(pilot, "FLIGHT BOARD")

    _run(steps)


def test_an_acknowledgement_goes_to_the_collector_and_its_answer_is_shown() -> None:
    """Taken or refused."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press("A", "a")
        await _shows(pilot, "acknowledged")
        assert desk.acknowledged == [(scenario.storm().findings[0].id, scenario.storm().run.run_id)]
        desk.refusal = "not acknowledged: HTTP 403; set OVERWATCH_TOKEN to a token that may control"
        await pilot.press("a")
        await _shows(pilot, "not acknowledged: HTTP 403")

    _run(steps)
