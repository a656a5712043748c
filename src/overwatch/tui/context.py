"""What a frame depends on besides the snapshot: the terminal, what the user opened, how fresh it is.

The terminal itself counts how long nothing has arrived: a screen that no longer moves must show it. Pure.
"""

from collections import deque
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from overwatch.catalog.durations import duration
from overwatch.feeds.live import Listed
from overwatch.snapshot import FeedLine, Finding, Link, Snapshot
from overwatch.tui.charts import Charts
from overwatch.tui.comparison import Comparison
from overwatch.tui.grammar import age
from overwatch.tui.keys import KEYS, Key, Mode
from overwatch.tui.memory import Heat, History, Past, Scrollback
from overwatch.tui.playback import Playback
from overwatch.tui.prompt import Prompt
from overwatch.tui.text import Line, Role, clean

COMPACT_BELOW: Final = 120
WIDE_FROM: Final = 160
SHORT_BELOW: Final = 30
CONSOLE: Final = 1000
"""Lines of a program's console that are kept."""
SLOW_S: Final = 2.0
STALE_S: Final = 5.0
_RANK: Final = {"live": 0, "slow": 1, "catching_up": 1, "stale": 2, "silent": 2, "lost": 3}
_OLD: Final = ("stale", "silent", "lost")
HALTED: Final = ("paused", "stalled")
"""Telemetry comes: its age is not how long training is halted, which the verdict states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Whether what is shown is fresh, in one word, and the age of its data."""

    state: str
    """`live`, `slow`, `catching_up`, `paused`, `stalled`, `stale`, `silent`, `lost` or `ended`."""
    age_s: float | None
    cut_off: bool = False
    """The data stopped coming to this terminal, whatever the collector last sent of it."""
    was_old: bool = False
    """In a recording: what is shown was old when it was live."""
    simulated: bool = False
    """In a recording: a script wrote it."""

    @property
    def old(self) -> bool:
        """Whether values are marked as old."""
        return self.was_old or self.state in _OLD

    @property
    def role(self) -> Role:
        """What the word means to the eye."""
        roles = {
            "live": Role.OK, "slow": Role.WARN, "catching_up": Role.WARN, "silent": Role.WARN,
            "ended": Role.TEXT, "paused": Role.INFO,
        }  # fmt: skip
        if self.state.startswith("replay"):
            return Role.INFO
        return roles.get(self.state, Role.CRIT)

    @property
    def brief(self) -> str:
        """One word, where there is no room for more: `LIVE`, `REPLAY (SIMULATED)`."""
        if self.state.startswith("replay"):
            return f"REPLAY{' (SIMULATED)' if self.simulated else ''}"
        return clean(self.state).upper().replace("_", " ")

    @property
    def text(self) -> str:
        """`LIVE 0.3s`, `STALE 14s`."""
        if self.state.startswith("replay"):
            shown = self.state.replace("replay", "REPLAY")
            if self.simulated:
                return self.brief if shown == "REPLAY" else f"SIMULATED {shown}"
            return shown
        if self.age_s is None or self.state in HALTED:
            return self.brief
        ended = self.state == "ended"
        return f"{self.brief} {duration(self.age_s, coarse=True) if ended else age(self.age_s)}"


def freshness(link: Link, waited_s: float, *, connected: bool = True) -> Freshness:
    """Judge the link by the collector's word and by how long this terminal received nothing.

    Without a connection, two seconds of silence are enough to call it stale. An ended run stays ended.
    """
    total = None if link.data_age_s is None else link.data_age_s + waited_s
    if link.state == "ended":
        return Freshness(state="ended", age_s=total)
    patience_s = STALE_S if connected else SLOW_S
    here = "stale" if waited_s >= patience_s else "slow" if waited_s >= SLOW_S else "live"
    cut_off = _RANK[here] > _RANK.get(link.state, 0)
    return Freshness(state=here if cut_off else link.word, age_s=total, cut_off=cut_off and here == "stale")


def replayed(link: Link, playback: Playback, *, simulated: bool = False) -> Freshness:
    """In a recording nothing grows old while it is looked at."""
    way = f"replay seeking {playback.part:.0%}" if playback.part else "replay seeking"
    still = "replay" if playback.playing or playback.still else "replay paused"
    if playback.known < 1.0:
        still = f"replay reading {playback.known:.0%}"
    word = way if playback.busy and not playback.playing else still
    return Freshness(state=word, age_s=None, was_old=link.state in _OLD, simulated=simulated)


def freshness_of(
    shown: Snapshot, playback: Playback | None, waited_s: float = 0.0, *, connected: bool = True
) -> Freshness:
    """Of a live run by its link, of a recorded one by the place in the recording."""
    if playback is None:
        return freshness(shown.link, waited_s, connected=connected)
    return replayed(shown.link, playback, simulated=shown.run.simulated)


class LaneAt(NamedTuple):
    """A closed lane of the board, as a place for the cursor."""

    gpu_id: str | None


Place: TypeAlias = int | LaneAt
"""Where the cursor can lie: on an env, by its id, or on a closed lane."""


class AlarmAt(NamedTuple):
    """A line of the alarm rail, by its number."""

    number: int


class LineAt(NamedTuple):
    """A line of the feed, counted back from the newest."""

    back: int


class PickAt(NamedTuple):
    """A line of a page that lists something."""

    place: int


Target: TypeAlias = Place | AlarmAt | LineAt | PickAt
"""What a click can mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Lines of a panel, a page or the whole screen, and where the cursor and the mouse can go in them."""

    lines: list[Line]
    walk: tuple[Place, ...] = ()
    """Places in the order in which the cursor visits them."""
    cursor: Place | None = None
    """What the cursor lies on."""
    most_scroll: int = 0
    """How far the drawer's text can be scrolled."""
    targets: tuple[Target | None, ...] = ()
    """What a click on each line means, from the first on; on further ones nothing."""
    edge: int | None = None
    """The cell from which on a click is in the drawer and means none of these; absent without one beside."""

    def target(self, x: int, y: int) -> Target | None:
        """What is under a cell."""
        return self.targets[y] if 0 <= y < len(self.targets) and not self.beyond(x) else None

    def beyond(self, x: int) -> bool:
        """Whether a cell is in the drawer that stands beside the board."""
        return self.edge is not None and x >= self.edge


class LaneOf(NamedTuple):
    """A lane in the drawer, by its name."""

    gpu_id: str


class SlotOf(NamedTuple):
    """A slot of an env in the drawer: the seed in it, and those before."""

    env_id: int
    slot: str


class HostOf(NamedTuple):
    """The host in the drawer, with its busiest processes."""


Inspected: TypeAlias = LaneOf | SlotOf | HostOf | FeedLine
"""What the drawer can be about besides an env and a finding."""


class Page(Enum):
    """What takes the place of the overview; each has a `Mode` of its name."""

    RUNS = "runs"
    FINDINGS = "findings"
    POLICY = "policy"
    COMPARE = "compare"
    CURVES = "curves"
    CONFIG = "config"
    LOGS = "logs"


@dataclass(slots=True, kw_only=True)
class Ui:
    """What the user opened, folded, typed and toggled, and what this terminal saw; panels read it."""

    keys: tuple[Key, ...] = KEYS
    """The user's keys."""
    notice: str | None = None
    """One message to the user on the key line."""
    prompt: Prompt | None = None
    helping: bool = False
    topic: int = 0
    """The page of help."""
    recorded: bool = False
    """There is a recording of this run that can be opened from here."""

    env_id: int | None = None
    """The env in the drawer."""
    alarm: Finding | None = None
    """The finding in the drawer."""
    inspected: Inspected | None = None
    """The lane, slot or line in the drawer."""
    full: bool = False
    """The drawer takes the whole screen."""
    scroll: int = 0
    """Lines of the drawer's or help's text above its first shown one."""
    past: Past = field(default_factory=Past)
    """How the env in the drawer was, where that is shown and not how it is."""

    folds: dict[str | None, bool] = field(default_factory=dict)
    """Lanes that the user opened (true) or closed."""
    pinned: frozenset[int] = frozenset()
    """Envs that the user marked."""
    heat: Heat = field(default_factory=Heat)
    heat_of: str | None = None
    """What the heatmap in the board's place has rows of: `env` or `gpu`; `None` is the board."""
    heat_step: int = 1
    """Seconds in a cell of it."""

    scrollback: Scrollback = field(default_factory=Scrollback)
    feed_has_keys: bool = False
    toggles: frozenset[str] = frozenset()
    """Which kinds of feed lines are shown; all without."""
    search: str = ""
    """Words that every shown feed line has."""
    line: int | None = None
    """The feed's line under the cursor, counted back from the newest; `None` follows."""
    facts: bool | None = None
    """The feed leaves out what comes too fast to be read; absent where no level was chosen."""

    page: Page | None = None
    picked: int = 0
    """Where the cursor of a page is."""
    runs: tuple[Listed, ...] = ()
    """All runs that are known."""
    console: deque[FeedLine] = field(default_factory=lambda: deque(maxlen=CONSOLE))
    """What a program beside this terminal printed."""
    history: History = field(default_factory=History)
    """The policy's numbers over more updates than a snapshot carries."""
    beside: Comparison | None = None
    """This run and another, where they are compared."""
    charts: Charts = field(default_factory=Charts)
    """What is seen of the past."""

    @property
    def opened(self) -> bool:
        """Whether the drawer is open."""
        return self.env_id is not None or self.alarm is not None or self.inspected is not None

    @property
    def logs(self) -> tuple[FeedLine, ...]:
        """The lines of the trainer's own log and console, newest first."""
        lines = (*self.scrollback.lines(frozenset({"log"})), *self.console)
        return tuple(sorted(lines, key=lambda line: line.time)[::-1])

    def mode(self, *, compact: bool) -> Mode:
        """Where keys go."""
        if self.helping:
            return Mode.HELP
        if self.prompt is not None:
            return Mode.PROMPT
        if self.page is not None:
            return Mode[self.page.name]
        if self.opened and (self.full or compact):
            return Mode.FULL
        if self.feed_has_keys:
            return Mode.FEED
        return Mode.DRAWER if self.opened else Mode.BOARD

    def clear_drawer(self) -> None:
        """Nothing is in the drawer; the next thing is as large as this was."""
        self.env_id = self.alarm = self.inspected = self.line = None
        self.scroll = 0

    def close(self) -> None:
        """Close the drawer."""
        self.clear_drawer()
        self.full = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One terminal at one moment."""

    width: int
    height: int
    fresh: Freshness
    waited_s: float = 0.0
    """Since the snapshot arrived here, on a monotonic clock."""
    cursor: Place | None = None
    """What lies under the cursor; without one, the cursor lies on the first row."""
    zone: tzinfo | None = None
    """Clock times are shown in it; `None` means this machine's."""
    beside: bool = False
    """These lines stand left of the drawer."""
    playback: Playback | None = None
    """The place in a recording; absent when live."""
    ui: Ui = field(default_factory=Ui)

    @property
    def mode(self) -> Mode:
        """Where keys go."""
        return self.ui.mode(compact=self.compact)

    @property
    def compact(self) -> bool:
        """Whether the terminal is too narrow for the standard layout."""
        return self.width < COMPACT_BELOW and not self.beside

    @property
    def short(self) -> bool:
        """Whether the terminal has so few rows that the board needs what others can spare."""
        return self.height < SHORT_BELOW
