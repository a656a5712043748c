"""Everything that can be typed after `:`, once: names, arguments, what they do. The palette is this table.

A command is one row here. What cannot be done is a `CommandError` that names the word and what there is
instead. Must not know drawing.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from overwatch.projection.filtering import FilterError
from overwatch.projection.filtering import parse as parse_filter
from overwatch.tui.actions import board, charts, feed, pages, recording
from overwatch.tui.playback import PLACES
from overwatch.tui.prompt import Candidate, Kind, Vocabulary, begun, of_filter
from overwatch.tui.session import Session
from overwatch.tui.settings import THEME_NAMES

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
    run: Callable[[Session, str], None]
    """Raises `CommandError`; gets the argument without blanks around it."""
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


def _do(do: Callable[[Session], None]) -> Callable[[Session, str], None]:
    return lambda session, _: do(session)


def _of(do: Callable[[Session, str], None], which: str) -> Callable[[Session, str], None]:
    return lambda session, _: do(session, which)


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
    try:
        parse_filter(text, slots=session.slots)
    except FilterError as error:
        raise CommandError(str(error)) from None
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


def _seek(session: Session, text: str) -> None:
    try:
        recording.seek(session, text)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _speed(session: Session, text: str) -> None:
    try:
        recording.set_speed(session, text)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _save(session: Session, file: str) -> None:
    session.requests.saving = file or "auto"


def _places(text: str, _: Vocabulary) -> tuple[Candidate, ...]:
    return begun(("update ", "finding ", "event "), text)


def _one_of(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(known)}" if known else "there are none"


COMMANDS: Final = (
    Command(name="env", argument="ID", does="open an environment", run=_env,
            choices=_words(lambda known: known.envs)),
    Command(name="alarm", argument="N", does="open what an alarm is about", run=_alarm,
            choices=_words(lambda known: tuple(map(str, range(1, known.alarms + 1))))),
    Command(name="lane", argument="NAME", does="unfold a lane and go to its worst environment", run=_lane,
            choices=_words(lambda known: known.lanes)),
    Command(name="sort", argument="COLUMN [asc|desc]", does="order the board", run=_sort,
            choices=_words(lambda known: known.sorts)),
    Command(name="filter", argument="TERMS", does="show only what passes; all without", run=_filter,
            choices=of_filter),
    Command(name="search", argument="WORDS", does="only feed lines with these words; all without",
            run=feed.search),
    Command(name="errors", does="only errors in the feed, or no longer", run=_of(feed.toggle, "errors")),
    Command(name="updates", does="only policy updates in the feed, or no longer",
            run=_of(feed.toggle, "policy")),
    Command(name="policy", does="all of the policy, with charts", run=_of(pages.toggle, "policy")),
    Command(name="curves", argument="[PATTERN]", does="every number as a chart; only those that pass",
            run=charts.match),
    Command(name="config", does="the run's configuration, revision and environment",
            run=_of(pages.toggle, "config")),
    Command(name="pause", does="stop the feed, or follow again", run=_do(feed.pause)),
    Command(name="set", argument="SETTING VALUE", does="theme, glyphs or clock, until you leave", run=_set,
            choices=_settings),
    Command(name="heatmap", does="the board as a heatmap over time, or back", run=_of(board.heatmap, "env")),
    Command(name="host", does="the host and its five busiest processes", run=_do(board.host)),
    Command(name="gpus", does="the board as a heatmap of GPUs over time, or back",
            run=_of(board.heatmap, "gpu")),
    Command(name="log", does="the trainer's own log and console", run=_of(pages.toggle, "logs")),
    Command(name="verbose", does="every line of the feed, or only facts and warnings", run=_do(feed.level)),
    Command(name="mark", does="mark the environment under the cursor", run=_do(board.pin)),
    Command(name="copy", does="what is open, or the row, into the clipboard", run=_do(board.copy)),
    Command(name="screenshot", argument="[FILE]", does="write the screen as SVG",
            run=_save),
    Command(name="compare", does="this run beside another", run=_of(pages.toggle, "compare"), replay=True),
    Command(name="findings", does="all findings of the run", run=_of(pages.toggle, "findings")),
    Command(name="ack", does="acknowledge the finding of the drawer or the cursor", live=True,
            run=_do(pages.acknowledge)),
    Command(name="runs", does="all runs of all collectors", run=_of(pages.toggle, "runs")),
    Command(name="run", argument="ID", does="watch another run", run=_run,
            choices=_words(lambda known: known.runs)),
    Command(name="play", does="play or pause the recording", run=_do(recording.play), replay=True),
    Command(name="seek", argument="PLACE", run=_seek, replay=True, choices=_places,
            does=f"go to {PLACES}"),
    Command(name="speed", argument="TIMES", does="play 0.1 to 1000 times as fast", run=_speed, replay=True,
            choices=_words(lambda _: ("0.1", "0.5", "1", "10", "100", "1000"))),
    Command(name="replay", does="replay this run from its recording", run=_do(recording.replay), live=True),
    Command(name="home", does="the overview, cursor on the worst environment", run=_do(pages.home)),
    Command(name="help", does="keys, filters, marks", run=_do(pages.show_help)),
    Command(name="quit", does="leave; the run is not touched", run=_do(pages.leave)),
)  # fmt: skip


def run(session: Session, line: str, vocabulary: Vocabulary) -> None:
    """Do what was typed; the beginning of a name is enough where it is one command's alone.

    Raises `CommandError`.
    """
    name, _, argument = line.strip().partition(" ")
    if name:
        _named(name, vocabulary).run(session, argument.strip())


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
