"""Every key, pasted text, the mouse, and all that can be typed after `:`, to what they do.

`ACTIONS` is the table of what a key can do, `COMMANDS` that of the palette: names, arguments, what they do.
What cannot be done is a `CommandError` that names the word and what there is instead. Everything the mouse
does a key does too. Must not know Textual or where things are drawn.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

import msgspec

from overwatch.projection.filtering import parse as parse_filter
from overwatch.tui.actions import board, pages
from overwatch.tui.context import AlarmAt, LaneAt, LineAt, PickAt, Target
from overwatch.tui.keys import Arg, Key, Mode, find
from overwatch.tui.playback import PLACES
from overwatch.tui.prompt import FILTER, SEARCH, Candidate, Kind, Prompt, Vocabulary, begun, of_filter
from overwatch.tui.session import Session
from overwatch.tui.settings import THEME_NAMES

Action: TypeAlias = Callable[[Session, Arg], None]


def _plain(do: Callable[[Session], None]) -> Action:
    return lambda session, _: do(session)


def _by(do: Callable[[Session, int], None]) -> Action:
    return lambda session, arg: do(session, arg.by)


def _of(do: Callable[[Session, str], None], always: str | None = None) -> Action:
    return lambda session, arg: do(session, arg.of if always is None else always)


_SETS: Final[dict[str, tuple[str, ...]]] = {
    "theme": THEME_NAMES,
    "glyphs": ("auto", "unicode", "ascii"),
    "clock": ("local", "utc"),
    "mouse": ("on", "off"),
}


class CommandError(ValueError):
    """A command that cannot be done; names what there is instead."""


Choices = Callable[[str, Vocabulary], tuple[Candidate, ...]]
"""What an argument that is typed so far may become."""


def _nothing(_: str, __: Vocabulary) -> tuple[Candidate, ...]:
    return ()


def _words(pick: Callable[[Vocabulary], Sequence[str]]) -> Choices:
    return lambda text, vocabulary: begun(pick(vocabulary), text)


def _settings(text: str, _: Vocabulary) -> tuple[Candidate, ...]:
    name, space, value = text.partition(" ")
    return begun(_SETS.get(name, ()), value) if space else begun(tuple(_SETS), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command."""

    name: str
    does: str
    run: Action
    """Gets what was typed after the name, without blanks around it; raises `ValueError`."""
    argument: str = ""
    """What comes after the name, as help writes it; empty where nothing does."""
    choices: Choices = _nothing
    replay: bool = False
    """Only for recordings."""
    live: bool = False
    """Only for live runs."""

    def fits(self, vocabulary: Vocabulary) -> bool:
        """Whether it has a meaning for this run."""
        return vocabulary.replay if self.replay else not (self.live and vocabulary.replay)


def _sort(session: Session, text: str) -> None:
    name, _, way = text.partition(" ")
    if name not in session.sorts:
        raise CommandError(
            f"the board cannot be sorted by {name or 'nothing'!r}; {_one_of(name, session.sorts)}"
        )
    if way.strip() not in ("", "asc", "desc"):
        raise CommandError(f"a direction is asc or desc, not {way.strip()!r}")
    session.board.sort_by(name, descending=None if not way.strip() else way.strip() == "desc")


def _filter(session: Session, text: str) -> None:
    parse_filter(text, slots=session.slots)
    session.board.filter_by(text)


def _env(session: Session, text: str) -> None:
    if not text.isdecimal():
        raise CommandError(f"an environment is a number, not {text!r}; e.g. env 17")
    board.open_env(session, int(text))


def _alarm(session: Session, text: str) -> None:
    if not text.isdecimal():
        raise CommandError(f"an alarm is a number of the rail, not {text!r}; e.g. alarm 1")
    board.open_alarm(session, int(text))


def _lane(session: Session, text: str) -> None:
    lanes = () if session.shown is None else tuple(lane.gpu_id for lane in session.shown.system.gpus)
    if text not in lanes:
        raise CommandError(f"no lane is called {text!r}; {_one_of(text, lanes)}")
    board.unfold(session, text)


def _run(session: Session, text: str) -> None:
    if not pages.watch(session, text):
        runs = session.vocabulary.runs
        raise CommandError(f"no run is called {text!r}; {_one_of(text, runs)}")


def _set(session: Session, text: str) -> None:
    name, _, value = text.partition(" ")
    if name == "utc" and not value:
        name, value = "clock", "utc"
    if name not in _SETS:
        raise CommandError(f"there is no setting {name!r}; {_one_of(name, tuple(_SETS))}")
    if value.strip() not in _SETS[name]:
        raise CommandError(f"{name} cannot be {value.strip()!r}; {_one_of(value.strip(), _SETS[name])}")
    wanted = value.strip() == "on" if name == "mouse" else value.strip()
    session.settings = msgspec.structs.replace(session.settings, **{name: wanted})
    notice = f"{name} is {value.strip()} until you leave; write it into the settings file to keep it"
    session.ui.notice = notice


def _save(session: Session, file: str) -> None:
    session.requests.saving = file or "auto"


def _one_of(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(known)}" if known else "there are none"


COMMANDS: Final = (
    Command(name="env", argument="ID", does="open an environment", run=_of(_env),
            choices=_words(lambda known: known.envs)),
    Command(name="alarm", argument="N", does="open what an alarm is about", run=_of(_alarm),
            choices=_words(lambda known: tuple(map(str, range(1, known.alarms + 1))))),
    Command(name="lane", argument="NAME", does="unfold a lane and go to its worst environment",
            run=_of(_lane), choices=_words(lambda known: known.lanes)),
    Command(name="sort", argument="COLUMN [asc|desc]", does="order the board", run=_of(_sort),
            choices=_words(lambda known: known.sorts)),
    Command(name="filter", argument="TERMS", does="show only what passes; all without", run=_of(_filter),
            choices=of_filter),
    Command(name="search", argument="WORDS", does="only feed lines with these words; all without",
            run=_of(board.search)),
    Command(name="errors", does="only errors in the feed, or no longer",
            run=_of(board.toggle_lines, "errors")),
    Command(name="updates", does="only policy updates in the feed, or no longer",
            run=_of(board.toggle_lines, "policy")),
    Command(name="policy", does="all of the policy, with charts", run=_of(pages.toggle, "policy")),
    Command(name="curves", argument="[PATTERN]", does="every number as a chart; only those that pass",
            run=_of(pages.match)),
    Command(name="config", does="the run's configuration, revision and environment",
            run=_of(pages.toggle, "config")),
    Command(name="pause", does="stop the feed, or follow again", run=_plain(board.pause_feed)),
    Command(name="set", argument="SETTING VALUE", does="theme, glyphs or clock, until you leave",
            run=_of(_set), choices=_settings),
    Command(name="heatmap", does="the board as a heatmap over time, or back", run=_of(board.heatmap, "env")),
    Command(name="host", does="the host and its five busiest processes", run=_plain(board.host)),
    Command(name="gpus", does="the board as a heatmap of GPUs over time, or back",
            run=_of(board.heatmap, "gpu")),
    Command(name="log", does="the trainer's own log and console", run=_of(pages.toggle, "logs")),
    Command(name="verbose", does="every line of the feed, or only facts and warnings",
            run=_plain(board.feed_level)),
    Command(name="mark", does="mark the environment under the cursor", run=_plain(board.pin)),
    Command(name="copy", does="what is open, or the row, into the clipboard", run=_plain(board.copy)),
    Command(name="screenshot", argument="[FILE]", does="write the screen as SVG", run=_of(_save)),
    Command(name="compare", does="this run beside another", run=_of(pages.toggle, "compare"), replay=True),
    Command(name="findings", does="all findings of the run", run=_of(pages.toggle, "findings")),
    Command(name="ack", does="acknowledge the finding of the drawer or the cursor", live=True,
            run=_plain(pages.acknowledge)),
    Command(name="runs", does="all runs of all collectors", run=_of(pages.toggle, "runs")),
    Command(name="run", argument="ID", does="watch another run", run=_of(_run),
            choices=_words(lambda known: known.runs)),
    Command(name="play", does="play or pause the recording", run=_plain(pages.play), replay=True),
    Command(name="seek", argument="PLACE", does=f"go to {PLACES}", run=_of(pages.seek), replay=True,
            choices=_words(lambda _: ("update ", "finding ", "event "))),
    Command(name="speed", argument="TIMES", does="play 0.1 to 1000 times as fast",
            run=_of(pages.set_speed), replay=True,
            choices=_words(lambda _: ("0.1", "0.5", "1", "10", "100", "1000"))),
    Command(name="replay", does="replay this run from its recording", run=_plain(pages.replay), live=True),
    Command(name="home", does="the overview, cursor on the worst environment", run=_plain(pages.home)),
    Command(name="help", does="keys, filters, marks", run=_plain(pages.show_help)),
    Command(name="quit", does="leave; the run is not touched", run=_plain(pages.leave)),
)  # fmt: skip


def run(session: Session, line: str, vocabulary: Vocabulary) -> None:
    """Do what was typed; the beginning of a name is enough where it is one command's alone.

    Raises `CommandError`.
    """
    name, _, argument = line.strip().partition(" ")
    if not name:
        return
    try:
        _named(name, vocabulary).run(session, Arg(of=argument.strip()))
    except ValueError as error:
        raise CommandError(str(error)) from None


def check(line: str, vocabulary: Vocabulary) -> str | None:
    """Why a line that is being typed is no command, `None` while it may become one."""
    name, space, _ = line.lstrip().partition(" ")
    try:
        if space or not complete(line, vocabulary):
            _named(name, vocabulary)
    except CommandError as error:
        return str(error) if name else None
    return None


def _named(name: str, vocabulary: Vocabulary) -> Command:
    usable = [command for command in COMMANDS if command.fits(vocabulary)]
    exact = [command for command in usable if command.name == name]
    near = exact or [command for command in usable if command.name.startswith(name)]
    if len(near) == 1:
        return near[0]
    elsewhere = {command.name: command.replay for command in COMMANDS}
    if name in elsewhere:
        raise CommandError(f"{name} is for {'recordings' if elsewhere[name] else 'live runs'}")
    if near:
        raise CommandError(f"{name!r} may be {' or '.join(command.name for command in near)}")
    raise CommandError(f"there is no command {name!r}; {_one_of(name, [one.name for one in usable])}")


def complete(line: str, vocabulary: Vocabulary) -> tuple[Candidate, ...]:
    """What the last word of a line may become."""
    name, space, rest = line.lstrip().partition(" ")
    if not space:
        return tuple(
            Candidate(
                word=one.name + (" " if one.argument else ""), note=f"{one.argument:18} {one.does}".strip()
            )
            for one in COMMANDS
            if one.fits(vocabulary) and one.name.startswith(name)
        )
    try:
        return _named(name, vocabulary).choices(rest.lstrip(), vocabulary)
    except CommandError:
        return ()


COMMAND: Final = Kind(sign=": ", entered="does", check=check, complete=complete)
"""The prompt for all of them."""


def _prompt(session: Session, kind: Kind, text: str) -> None:
    vocabulary = session.vocabulary
    session.ui.prompt = Prompt(kind=kind, text=text, at=len(text), before=text, vocabulary=vocabulary)


def open_command(session: Session) -> None:
    """Ask for a command."""
    session.ui.helping = False
    _prompt(session, COMMAND, "")


ACTIONS: Final[dict[str, Action]] = {
    "ack": _plain(pages.acknowledge),
    "alarm": _by(board.open_alarm),
    "back": _plain(pages.back),
    "cause": _plain(board.cause),
    "choose": _plain(pages.choose),
    "close": _plain(board.close),
    "command": _plain(open_command),
    "copy": _plain(board.copy),
    "curve": pages.pick_chart,
    "faster": _by(pages.faster),
    "filter": lambda session, _: _prompt(session, FILTER, session.board.filter),
    "focus": _of(board.focus),
    "fold": _plain(board.fold),
    "full": _plain(board.full),
    "help": _plain(pages.show_help),
    "home": _plain(pages.home),
    "host": _plain(board.host),
    "inspect": _plain(board.inspect),
    "leave": _plain(pages.leave),
    "level": _plain(board.feed_level),
    "line": _by(board.feed_line),
    "log": _plain(pages.chart_log),
    "map": _of(board.heatmap),
    "mark": _by(pages.mark),
    "mark_run": _plain(pages.mark_run),
    "match": lambda session, _: _prompt(session, COMMAND, f"curves {session.ui.charts.pattern}"),
    "moment": _plain(board.moment),
    "move": _by(board.move),
    "next_panel": _plain(board.next_panel),
    "next_run": _by(pages.next_run),
    "open": _plain(board.open_place),
    "open_line": _plain(board.open_line),
    "outlier": _by(board.outlier),
    "overlay": _plain(pages.chart_overlay),
    "page": _of(pages.toggle),
    "past": _by(board.past),
    "pick": _by(pages.pick),
    "pin": _plain(board.pin),
    "pinned": _plain(board.show_pinned),
    "play": _plain(pages.play),
    "read": pages.chart_read,
    "replay": _plain(pages.replay),
    "reverse": _plain(board.reverse),
    "rewind": _plain(board.rewind),
    "scroll": _by(board.scroll),
    "search": lambda session, _: _prompt(session, SEARCH, session.ui.search),
    "sort": _plain(board.sort_next),
    "step": _by(pages.step),
    "suspend": _plain(pages.suspend),
    "toggle": _of(board.toggle_lines),
    "topic": _by(pages.topic),
    "whole": _plain(pages.chart_whole),
    "window": pages.chart_window,
    "zoom": _by(board.zoom),
}
"""What a key can do, by the name that the key table and a user's keymap have for it."""

_WHEEL: Final = 3
"""Lines of one notch."""
_MOVES: Final[dict[Mode, tuple[Callable[[Session, int], None], int]]] = {
    Mode.BOARD: (board.move, 1), Mode.DRAWER: (board.move, 1), Mode.FEED: (board.feed_line, -1),
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
            board.click_line(session, back)
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
        board.search(session, text)


def _enter(session: Session, prompt: Prompt) -> None:
    """A candidate that the user went to is taken; a command runs."""
    if prompt.chosen is not None:
        prompt = prompt.taken
        if prompt.error is None:
            _apply(session, prompt.kind, prompt.text.strip())
    if prompt.kind is not COMMAND:
        session.ui.notice = prompt.error
        return
    try:
        run(session, prompt.text, session.vocabulary)
    except CommandError as error:
        session.ui.notice = str(error)
