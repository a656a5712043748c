"""Every key, once: what it does where, the key line and the help page are made from this table.

A key that is not here does nothing; a row here without an action fails a test.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple


class Mode(Enum):
    """Where the keys go; the value is the heading in help."""

    BOARD = "Flight board"
    FEED = "Feed"
    DRAWER = "Drawer"
    FULL = "Drawer, full screen"
    RUNS = "Runs"
    FINDINGS = "Findings"
    POLICY = "Policy"
    COMPARE = "Compare"
    CURVES = "Curves"
    CONFIG = "Configuration"
    LOGS = "Log"
    HELP = "Help"
    PROMPT = "Prompt"


class Arg(NamedTuple):
    """What an action gets from its key."""

    by: int = 0
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing a key does."""

    keys: str
    """Textual key names, comma-separated."""
    action: str
    """Its row of `commands.ACTIONS`."""
    by: int = 0
    """How far, for what moves on."""
    of: str = ""
    """Which, for what there are several of."""
    shown: str
    """How help writes the keys."""
    does: str
    modes: tuple[Mode, ...] = (Mode.BOARD, Mode.FEED, Mode.DRAWER, Mode.FULL)
    hint: str | None = None
    """What the key line has; nothing where it has no room for this key."""
    tiny: str | None = None
    """What the key line has below 120 cells."""
    hinted: tuple[Mode, ...] | None = None
    """Where the key line has it, if not in all its modes."""
    slots: bool = False
    """Only for runs that have slots."""
    replay: bool = False
    """Only while a recording is shown."""
    live: bool = False
    """Only while no recording is shown."""

    @property
    def names(self) -> tuple[str, ...]:
        """The Textual names."""
        return tuple(self.keys.split(","))

    @property
    def name(self) -> str:
        """What a user's keymap calls this: `filter`, `move 1`, `toggle errors`."""
        return f"{self.action} {self.of or self.by or ''}".rstrip()

    @property
    def arg(self) -> Arg:
        """What the action gets."""
        return Arg(self.by, self.of)


_BOARD: Final = (Mode.BOARD,)
_ROWS: Final = (Mode.BOARD, Mode.DRAWER)
_FEED: Final = (Mode.FEED,)
_OPEN: Final = (Mode.DRAWER, Mode.FULL)
_TEXT: Final = (Mode.FULL, Mode.HELP)
_LISTS: Final = (Mode.RUNS, Mode.FINDINGS, Mode.POLICY, Mode.COMPARE, Mode.CONFIG, Mode.LOGS)
_CURVES: Final = (Mode.CURVES,)
_PAGES: Final = (*_LISTS, *_CURVES)
_SHOWN: Final = (Mode.BOARD, Mode.FEED, Mode.DRAWER, Mode.FULL)
_ANYWHERE: Final = (*_SHOWN, *_PAGES, Mode.HELP)

KEYS: Final = (
    Key(keys="j,down", action="move", by=1, shown="j ↓", does="cursor to the next environment",
        modes=_ROWS, hint="j/k move", hinted=_BOARD),
    Key(keys="k,up", action="move", by=-1, shown="k ↑", does="cursor to the environment before",
        modes=_ROWS),
    Key(keys="pagedown", action="move", by=10, shown="PgDn", does="ten environments on", modes=_BOARD),
    Key(keys="pageup", action="move", by=-10, shown="PgUp", does="ten environments back", modes=_BOARD),
    Key(keys="enter", action="open", shown="Enter", does="open the environment, or the closed lane",
        modes=_BOARD, hint="Enter open", tiny="j/k Enter open"),
    Key(keys="j,down", action="line", by=-1, shown="j ↓", modes=_FEED,
        does="to the next line; past the newest it follows", hint="j/k line", tiny="j/k line"),
    Key(keys="k,up", action="line", by=1, shown="k ↑", does="to the line before", modes=_FEED),
    Key(keys="pagedown", action="line", by=-10, shown="PgDn", does="ten lines on", modes=_FEED),
    Key(keys="pageup", action="line", by=10, shown="PgUp", does="ten lines back", modes=_FEED),
    Key(keys="enter", action="open_line", shown="Enter", does="open the environment of the line", modes=_FEED,
        hint="Enter its env", tiny="Enter its env"),
    Key(keys="1", action="toggle", of="errors", shown="1", does="only errors, or no longer",
        modes=_FEED, hint="1 errors", tiny="1 errors"),
    Key(keys="2", action="toggle", of="seeds", shown="2", does="only seed events, or no longer",
        modes=_FEED, hint="2 seeds", tiny="2 seeds", slots=True),
    Key(keys="3", action="toggle", of="policy", shown="3", does="only policy updates, or no longer",
        modes=_FEED, hint="3 policy", tiny="3 policy"),
    Key(keys="4", action="toggle", of="log", shown="4", does="only the trainer's own log, or no longer",
        modes=_FEED, hint="4 log", tiny="4 log"),
    Key(keys="v", action="level", shown="v", does="every line of the feed, or only facts and warnings",
        modes=(*_ROWS, Mode.FEED), hint="v level", hinted=_FEED),
    Key(keys="slash", action="search", shown="/", does="search the feed: words, or env=9", modes=_FEED,
        hint="/ search", tiny="/ search"),
    Key(keys="enter", action="close", shown="Enter", does="close the drawer", modes=_OPEN,
        hint="Enter/Esc close", tiny="Esc back"),
    Key(keys="n", action="outlier", by=1, shown="n", does="next environment that is not OK",
        modes=_OPEN, hint="n/p next, previous outlier", tiny="n/p outlier"),
    Key(keys="p", action="outlier", by=-1, shown="p", does="previous environment that is not OK",
        modes=_OPEN),
    Key(keys="f", action="full", shown="f", does="the drawer on the full screen, or no longer", modes=_OPEN,
        hint="f full screen", hinted=(Mode.DRAWER,)),
    Key(keys="j,down", action="scroll", by=1, shown="j ↓", does="a line further down", modes=_TEXT,
        hint="j/k scroll", tiny="j/k scroll"),
    Key(keys="k,up", action="scroll", by=-1, shown="k ↑", does="a line further up", modes=_TEXT),
    Key(keys="pagedown", action="scroll", by=10, shown="PgDn",
        does="the text of the drawer further down", modes=(*_OPEN, Mode.HELP)),
    Key(keys="pageup", action="scroll", by=-10, shown="PgUp",
        does="the text of the drawer further up", modes=(*_OPEN, Mode.HELP)),
    *(Key(keys=str(number), action="alarm", by=number, shown="1-9" if number == 1 else "",
          does="open what that alarm is about" if number == 1 else "", modes=(Mode.BOARD, *_OPEN),
          hint="1-9 alarm" if number == 1 else None, tiny="1-9 alarm" if number == 1 else None, hinted=_BOARD)
      for number in range(1, 10)),
    Key(keys="j,down", action="pick", by=1, shown="j k", does="to the next line, to the one before",
        modes=_LISTS, hint="j/k move", tiny="j/k move"),
    Key(keys="k,up", action="pick", by=-1, shown="", does="", modes=_LISTS),
    Key(keys="pagedown", action="pick", by=10, shown="PgDn", does="ten lines on; PgUp: back",
        modes=_LISTS),
    Key(keys="pageup", action="pick", by=-10, shown="", does="", modes=_LISTS),
    Key(keys="j,down", action="curve", of="down", shown="j k", does="to the chart below, above",
        modes=_CURVES, hint="j/k Tab chart", tiny="j/k chart"),
    Key(keys="k,up", action="curve", of="up", shown="", does="", modes=_CURVES),
    Key(keys="tab", action="curve", by=1, shown="Tab", does="to the next chart; shift: the one before",
        modes=_CURVES),
    Key(keys="shift+tab", action="curve", by=-1, shown="", does="", modes=_CURVES),
    Key(keys="pagedown", action="curve", of="page", shown="PgDn", does="the next charts; PgUp: before",
        modes=_CURVES, hint="PgDn page", tiny="PgDn page"),
    Key(keys="pageup", action="curve", of="-page", shown="", does="", modes=_CURVES),
    Key(keys="enter", action="whole", shown="Enter", does="the chart alone, or all again",
        modes=_CURVES, hint="Enter one, all", tiny="Enter one"),
    Key(keys="right", action="read", by=1, shown="← → x", does="read values at one time; x: no more",
        modes=_CURVES, hint="←/→ read", tiny="←/→ read"),
    Key(keys="left", action="read", by=-1, shown="", does="", modes=_CURVES),
    Key(keys="x", action="read", of="off", shown="", does="", modes=_CURVES),
    Key(keys="z", action="window", of="in", shown="z Z", does="the last tenth, then less; Z: all of it",
        modes=_CURVES, hint="z/Z zoom", tiny="z/Z zoom"),
    Key(keys="Z,shift+z", action="window", of="all", shown="", does="", modes=_CURVES),
    Key(keys="left_parenthesis", action="window", by=-1, shown="( )", does="half of it earlier, later",
        modes=_CURVES, hint="( ) move"),
    Key(keys="right_parenthesis", action="window", by=1, shown="", does="", modes=_CURVES),
    Key(keys="L,shift+l", action="log", shown="L", does="logarithmic scale, or no longer", modes=_CURVES,
        hint="L log"),
    Key(keys="o", action="overlay", shown="o", does="over each curve: ranks, marked runs, nothing",
        modes=_CURVES, hint="o overlay"),
    Key(keys="slash", action="match", shown="/", does="only the numbers with that text in their name",
        modes=_CURVES, hint="/ filter", tiny="/ filter"),
    Key(keys="m", action="mark_run", shown="m", does="mark the run for the page of curves, or no longer",
        modes=(Mode.RUNS,), hint="m mark", tiny="m mark"),
    Key(keys="enter", action="choose", shown="Enter", does="watch this run", modes=(Mode.RUNS,),
        hint="Enter watch", tiny="Enter watch"),
    Key(keys="enter", action="choose", shown="Enter", does="open what the finding is about",
        modes=(Mode.FINDINGS,), hint="Enter open", tiny="Enter open"),
    Key(keys="s", action="sort", shown="s", does="sort by anomaly, env, return, fps, metric in turn",
        modes=_ROWS, hint="s sort", tiny="s sort", hinted=_BOARD),
    Key(keys="S,shift+s", action="reverse", shown="S", does="turn the order around", modes=_ROWS),
    Key(keys="slash", action="filter", shown="/", does="filter the environments", modes=_BOARD,
        hint="/ filter", tiny="/ filter"),
    Key(keys="e", action="focus", of="board", shown="e", does="keys to the flight board",
        hint="e board", hinted=(Mode.BOARD, Mode.FEED)),
    Key(keys="l", action="focus", of="feed", shown="l", does="keys to the feed", hint="l feed",
        tiny="l feed", hinted=(Mode.BOARD, Mode.FULL)),
    Key(keys="tab,shift+tab", action="next_panel", shown="Tab", does="keys to the next panel",
        hint="Tab focus", hinted=(Mode.DRAWER,)),
    Key(keys="a", action="ack", shown="a", does="acknowledge the finding of the drawer or the cursor",
        modes=(*_SHOWN, Mode.FINDINGS), hint="a ack", hinted=(Mode.BOARD, Mode.FEED, Mode.FINDINGS),
        live=True),
    Key(keys="A,shift+a", action="page", of="findings", shown="A", does="all findings, or back",
        modes=(*_SHOWN, Mode.FINDINGS)),
    Key(keys="P,shift+p", action="page", of="policy", shown="P", does="all of the policy, with charts",
        modes=(*_SHOWN, Mode.POLICY)),
    Key(keys="c", action="page", of="curves", shown="c",
        does="every number as a chart of the whole run, or back", modes=(*_SHOWN, *_PAGES)),
    Key(keys="C,shift+c", action="page", of="compare", shown="C",
        does="this run beside another, or back", modes=(*_SHOWN, Mode.COMPARE), replay=True),
    Key(keys="R,shift+r", action="page", of="runs", shown="R", does="all runs, or back",
        modes=(*_SHOWN, Mode.RUNS)),
    Key(keys="N,shift+n", action="next_run", by=1, shown="N",
        does="the next run", modes=_SHOWN),
    Key(keys="i", action="inspect", shown="i", does="all about the lane, or the line of the feed",
        modes=(Mode.BOARD, Mode.FEED)),
    Key(keys="i", action="inspect", shown="i", does="all about the next slot of the environment",
        modes=_OPEN, slots=True),
    Key(keys="m", action="pin", shown="m", does="mark the environment, or no longer", modes=_SHOWN),
    Key(keys="M,shift+m", action="pinned", shown="M", does="only marked environments, or all",
        modes=_BOARD),
    Key(keys="H,shift+h", action="map", shown="H", does="the board as a heatmap over time, or back",
        modes=_SHOWN),
    Key(keys="B,shift+b", action="host", shown="B",
        does="the host and its five busiest processes, or back", modes=_SHOWN),
    Key(keys="G,shift+g", action="map", of="gpu", shown="G",
        does="the board as a heatmap of GPUs over time, or back", modes=_SHOWN),
    Key(keys="O,shift+o", action="page", of="logs", shown="O",
        does="the trainer's own log and console, or back", modes=(*_SHOWN, Mode.LOGS)),
    Key(keys="tab,right", action="topic", by=1, shown="Tab →", does="the next page of help",
        modes=(Mode.HELP,), hint="Tab next page", tiny="Tab page"),
    Key(keys="shift+tab,left", action="topic", by=-1, shown="⇧Tab ←", does="the page of help before",
        modes=(Mode.HELP,)),
    Key(keys="plus", action="zoom", by=-1, shown="+", does="heatmap: less time in a cell",
        modes=_BOARD),
    Key(keys="minus", action="zoom", by=1, shown="-", does="heatmap: more time in a cell",
        modes=_BOARD),
    Key(keys="left_square_bracket", action="past", by=-1, shown="[",
        does="the environment as it was a second before", modes=_OPEN, live=True, hint="[ ] time",
        hinted=(Mode.DRAWER,)),
    Key(keys="right_square_bracket", action="past", by=1, shown="]",
        does="a second on, up to now", modes=_OPEN, live=True),
    Key(keys="y", action="copy", shown="y", does="copy what is open, or the row (OSC 52)", modes=_SHOWN,
        hint="y copy", tiny="y copy", hinted=_OPEN),
    Key(keys="o", action="fold", shown="o", does="fold or unfold the lane of the cursor", modes=_BOARD,
        hint="o fold"),
    Key(keys="space", action="play", shown="Space", does="play or pause", modes=_ANYWHERE, replay=True),
    Key(keys="full_stop", action="step", by=1, shown=".", does="one second on",
        modes=_ANYWHERE, replay=True),
    Key(keys="comma", action="step", by=-1, shown=",", does="one second back",
        modes=_ANYWHERE, replay=True),
    Key(keys="greater_than_sign", action="faster", by=1, shown=">", does="play twice as fast",
        modes=_ANYWHERE, replay=True),
    Key(keys="less_than_sign", action="faster", by=-1, shown="<", does="play half as fast",
        modes=_ANYWHERE, replay=True),
    Key(keys="right_square_bracket", action="mark", by=1, shown="]",
        does="to the next alarm on the timeline", modes=_ANYWHERE, replay=True),
    Key(keys="left_square_bracket", action="mark", by=-1, shown="[",
        does="to the alarm before on the timeline", modes=_ANYWHERE, replay=True),
    Key(keys="t", action="moment", shown="t", does="the feed at the moment when the finding began",
        modes=(*_ROWS, Mode.FULL, Mode.FINDINGS), hint="t its moment", hinted=(Mode.FINDINGS,)),
    Key(keys="t", action="cause", shown="t", does="the finding that the line belongs to", modes=_FEED,
        hint="t its finding", tiny="t finding"),
    Key(keys="T,shift+t", action="rewind", shown="T", does="the recording to the moment of the line",
        modes=_FEED, replay=True),
    Key(keys="r", action="replay", shown="r", does="replay this run from its recording",
        modes=(*_BOARD, *_FEED, *_OPEN), live=True),
    Key(keys="g,home", action="home", shown="g Home",
        does="the overview, cursor on the worst environment", modes=_ANYWHERE,
        hint="g home", tiny="g home", hinted=(Mode.BOARD, Mode.FEED)),
    Key(keys="escape", action="back", shown="Esc", does="back: closes what is open, then drops the filter",
        modes=_ANYWHERE, hint="Esc back", tiny="Esc back", hinted=_PAGES),
    Key(keys="colon,ctrl+p", action="command", shown=": ^P", does="type a command; Tab completes it",
        modes=_ANYWHERE, hint=": command", hinted=(Mode.BOARD, Mode.FEED, Mode.DRAWER)),
    Key(keys="question_mark,f1", action="help", shown="? F1", does="this page, or back from it",
        modes=_ANYWHERE, hint="? help", tiny="? help"),
    Key(keys="ctrl+z", action="suspend", shown="^Z", does="to the shell; fg comes back", modes=_ANYWHERE),
    Key(keys="q,ctrl+c", action="leave", shown="q", does="quit; the run is not touched", modes=_ANYWHERE,
        hint="q quit", tiny="q quit"),
)  # fmt: skip


class KeymapError(ValueError):
    """A keymap that cannot be used; the message names the entry and the fix."""


_LABELS: Final = {
    "slash": "/", "question_mark": "?", "colon": ":", "space": "Space", "full_stop": ".", "comma": ",",
    "greater_than_sign": ">", "less_than_sign": "<", "right_square_bracket": "]",
    "left_square_bracket": "[", "escape": "Esc", "enter": "Enter", "up": "↑", "down": "↓", "tab": "Tab",
    "pageup": "PgUp", "pagedown": "PgDn", "home": "Home",
}  # fmt: skip


_TYPED: Final = {
    "plus": "+", "minus": "-", "equals_sign": "=", "at": "@", "percent_sign": "%", "exclamation_mark": "!",
    "underscore": "_", "left_parenthesis": "(", "right_parenthesis": ")",
}  # fmt: skip


def spelt(key: str) -> tuple[str, str | None]:
    """Textual's name of a key, and what it types, from either: `/` and `slash` are the same."""
    typed = {name: label for name, label in (*_LABELS.items(), *_TYPED.items()) if len(label) == 1}
    typed |= {"space": " ", "up": "", "down": ""}
    names = {label: name for name, label in typed.items() if label}
    name = names.get(key, key)
    return name, key if len(key) == 1 else typed.get(name) or None


def keymap(changes: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    """The table with a user's keys; raises `KeymapError` for what is unknown, empty or used twice."""
    names = {key.name for key in KEYS}
    for name, wanted in changes.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
            raise KeymapError(f"keys: nothing is called {name!r}; {hint}")
        if not wanted or not all(one and one.strip() == one for one in wanted):
            raise KeymapError(f"keys: {name!r} needs at least one key, e.g. {name}: [f2]")
    table = tuple(_changed(key, changes[key.name]) if key.name in changes else key for key in KEYS)
    _refuse_clashes(table)
    return table


def _changed(key: Key, wanted: Sequence[str]) -> Key:
    label = " ".join(_LABELS.get(one, one) for one in wanted)
    first = label.split(" ")[0]
    hint, tiny = (None if one is None else f"{first} {one.partition(' ')[2]}" for one in (key.hint, key.tiny))
    shown = label if key.shown else ""
    return replace(key, keys=",".join(wanted), shown=shown, hint=hint, tiny=tiny)


def _refuse_clashes(table: Sequence[Key]) -> None:
    """One key does one thing in one place."""
    taken: dict[tuple[str, Mode, bool], Key] = {}
    for key in table:
        for name in key.names:
            for mode in key.modes:
                for replay in (False, True):
                    if (replay and key.live) or (not replay and key.replay):
                        continue
                    other = taken.setdefault((name, mode, replay), key)
                    if other is not key:
                        raise KeymapError(
                            f"keys: {name!r} is both {other.name!r} and {key.name!r} on the "
                            f"{mode.value.lower()}; give one of them another key"
                        )


def known(table: Sequence[Key] = KEYS, *, slots: bool, replay: bool) -> tuple[Key, ...]:
    """The keys of this run and feed."""
    return tuple(
        key
        for key in table
        if (slots or not key.slots) and (replay or not key.replay) and not (replay and key.live)
    )


def find(name: str, mode: Mode, table: Sequence[Key] = KEYS, *, slots: bool, replay: bool) -> Key | None:
    """What a key does in a mode."""
    for key in known(table, slots=slots, replay=replay):
        if mode in key.modes and name in key.names:
            return key
    return None
