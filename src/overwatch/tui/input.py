"""Keys, pasted text and the mouse, to what they do: `ACTIONS` is the table of what a key can do.

Everything the mouse does a key does too. Must not know Textual or where things are drawn.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from overwatch.tui import commands
from overwatch.tui.actions import board, charts, feed, pages, recording
from overwatch.tui.context import AlarmAt, LaneAt, LineAt, PickAt, Target
from overwatch.tui.keys import Arg, Key, Mode, find
from overwatch.tui.prompt import FILTER, SEARCH, Kind, Prompt
from overwatch.tui.session import Session

Action: TypeAlias = Callable[[Session, Arg], None]


def _plain(do: Callable[[Session], None]) -> Action:
    return lambda session, _: do(session)


def _by(do: Callable[[Session, int], None]) -> Action:
    return lambda session, arg: do(session, arg.by)


def _of(do: Callable[[Session, str], None]) -> Action:
    return lambda session, arg: do(session, arg.of)


def _prompt(session: Session, kind: Kind, text: str) -> None:
    vocabulary = session.vocabulary
    session.ui.prompt = Prompt(kind=kind, text=text, at=len(text), before=text, vocabulary=vocabulary)


def open_command(session: Session) -> None:
    """Ask for a command."""
    session.ui.helping = False
    _prompt(session, commands.COMMAND, "")


ACTIONS: Final[dict[str, Action]] = {
    "ack": _plain(pages.acknowledge),
    "alarm": _by(board.open_alarm),
    "back": _plain(pages.back),
    "cause": _plain(feed.cause),
    "choose": _plain(pages.choose),
    "close": _plain(board.close),
    "command": _plain(open_command),
    "copy": _plain(board.copy),
    "curve": charts.pick,
    "faster": _by(recording.faster),
    "filter": lambda session, _: _prompt(session, FILTER, session.board.filter),
    "focus": _of(board.focus),
    "fold": _plain(board.fold),
    "full": _plain(board.full),
    "help": _plain(pages.show_help),
    "home": _plain(pages.home),
    "host": _plain(board.host),
    "inspect": _plain(board.inspect),
    "leave": _plain(pages.leave),
    "level": _plain(feed.level),
    "line": _by(feed.line),
    "log": _plain(charts.log),
    "map": _of(board.heatmap),
    "mark": _by(recording.mark),
    "mark_run": _plain(charts.mark_run),
    "match": lambda session, _: _prompt(session, commands.COMMAND, f"curves {session.ui.charts.pattern}"),
    "moment": _plain(feed.moment),
    "move": _by(board.move),
    "next_panel": _plain(board.next_panel),
    "next_run": _by(pages.next_run),
    "open": _plain(board.open_place),
    "open_line": _plain(feed.open_line),
    "outlier": _by(board.outlier),
    "overlay": _plain(charts.overlay),
    "page": _of(pages.toggle),
    "past": _by(board.past),
    "pick": _by(pages.pick),
    "pin": _plain(board.pin),
    "pinned": _plain(board.show_pinned),
    "play": _plain(recording.play),
    "read": charts.read,
    "replay": _plain(recording.replay),
    "reverse": _plain(board.reverse),
    "rewind": _plain(feed.rewind),
    "scroll": _by(board.scroll),
    "search": lambda session, _: _prompt(session, SEARCH, session.ui.search),
    "sort": _plain(board.sort_next),
    "step": _by(recording.step),
    "suspend": _plain(pages.suspend),
    "toggle": _of(feed.toggle),
    "topic": _by(pages.topic),
    "whole": _plain(charts.whole),
    "window": charts.window,
    "zoom": _by(board.zoom),
}
"""What a key can do, by the name that the key table and a user's keymap have for it."""

_WHEEL: Final = 3
"""Lines of one notch."""
_MOVES: Final[dict[Mode, tuple[Callable[[Session, int], None], int]]] = {
    Mode.BOARD: (board.move, 1), Mode.DRAWER: (board.move, 1), Mode.FEED: (feed.line, -1),
    Mode.FULL: (board.scroll, 1), Mode.HELP: (board.scroll, 1), Mode.RUNS: (pages.pick, 1),
    Mode.FINDINGS: (pages.pick, 1), Mode.POLICY: (pages.pick, 1), Mode.COMPARE: (pages.pick, 1),
    Mode.CONFIG: (pages.pick, 1),
}  # fmt: skip
"""What the wheel moves in each mode, and by how much for one line down."""


def key_of(session: Session, name: str) -> Key | None:
    """What a key does now, by Textual's name."""
    replay = session.transport is not None
    return find(name, session.mode, session.ui.keys, slots=session.slots, replay=replay)


def press(session: Session, key: str, character: str | None, now: float) -> None:
    """One key, by Textual's name; `character` is what it types, `now` monotonic seconds."""
    _touch(session, now)
    if session.mode is Mode.PROMPT:
        _type(session, key, character)
        return
    found = key_of(session, key)
    if found is not None:
        ACTIONS[found.action](session, found.arg)


def _touch(session: Session, now: float) -> None:
    """The user does something: the last notice goes, and rows stand still for a while."""
    session.ui.notice = None
    session.board.hold.press(session.shown, now)


def paste(session: Session, text: str) -> None:
    """Text pasted into an open prompt."""
    if session.ui.prompt is not None:
        _edit(session, session.ui.prompt.insert(text))


def click(session: Session, target: Target | None, now: float) -> None:
    """A click on a target of the frame; `now` monotonic seconds."""
    if target is None or session.mode in (Mode.PROMPT, Mode.HELP):
        return
    _touch(session, now)
    match target:
        case AlarmAt(number=number):
            board.open_alarm(session, number)
        case LineAt(back=back):
            feed.click_line(session, back)
        case PickAt(place=place):
            pages.click_line(session, place)
        case LaneAt() | int():
            board.click_place(session, target)
        case _:
            assert_never(target)


def wheel(session: Session, down: int, now: float, *, drawer: bool = False) -> None:
    """Notches of the wheel downwards; `drawer`: over the drawer beside the board, whose text it scrolls."""
    found = (board.scroll, 1) if drawer else _MOVES.get(session.mode)
    if found is not None:
        _touch(session, now)
        move, by = found
        move(session, _WHEEL * down * by)


def _type(session: Session, key: str, character: str | None) -> None:
    prompt = session.ui.prompt
    if prompt is None:
        return
    if key == "ctrl+c":
        session.requests.leaving = True
    elif key == "escape":
        session.ui.prompt = None
        _apply(session, prompt.kind, prompt.before)
    elif key == "enter":
        session.ui.prompt = None
        _enter(session, prompt)
    else:
        typed = character is not None and character.isprintable() and not key.startswith("ctrl+")
        _edit(session, prompt.insert(character or "") if typed else prompt.press(key))


def _edit(session: Session, prompt: Prompt) -> None:
    """A filter and a search hold while they are typed; a command runs when it is entered."""
    session.ui.prompt = prompt
    if prompt.error is None:
        _apply(session, prompt.kind, prompt.text.strip())


def _apply(session: Session, kind: Kind, text: str) -> None:
    if kind is FILTER:
        session.board.filter_by(text)
    elif kind is SEARCH:
        feed.search(session, text)


def _enter(session: Session, prompt: Prompt) -> None:
    """A candidate that the user went to is taken; a command runs."""
    if prompt.chosen is not None:
        prompt = prompt.taken
        if prompt.error is None:
            _apply(session, prompt.kind, prompt.text.strip())
    if prompt.kind is not commands.COMMAND:
        session.ui.notice = prompt.error
        return
    try:
        commands.run(session, prompt.text, session.vocabulary)
    except commands.CommandError as error:
        session.ui.notice = str(error)
