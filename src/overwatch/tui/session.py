"""What the user did: cursor, focus, drawer, folds, filter, toggles. Keys go in, a view and a `Ui` come out.

Owns every decision about keys; knows snapshots and nothing of Textual, drawing or the network, so that it
can be tested by pressing keys. One `do_` method for each action of the key table.
"""

from collections.abc import Callable
from typing import Final

from overwatch.snapshot import FeedLine, Finding, Snapshot, View
from overwatch.tui.context import COMPACT_BELOW, LaneAt, Place, Ui
from overwatch.tui.hold import Hold
from overwatch.tui.keys import Mode, find
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.playback import Transport
from overwatch.tui.prompt import Prompt
from overwatch.tui.scrollback import Scrollback
from overwatch.tui.transporting import Transporting

ROWS: Final = 256
_ASCENDING_FIRST: Final = ("env", "return", "reward", "fps", "metric")
"""Sorts that begin with the lowest value: the worst return, the slowest env."""


class Session(Transporting):
    """One user at one terminal."""

    def __init__(self, transport: Transport | None = None) -> None:
        super().__init__(transport)
        self.snapshot: Snapshot | None = None
        """As it came."""
        self.shown: Snapshot | None = None
        """As it was drawn last."""
        self.width = COMPACT_BELOW
        self.walk: tuple[Place, ...] = ()
        """Places of the cursor in the frame drawn last."""
        self.cursor: Place | None = None
        self.scrollback = Scrollback()
        self.hold = Hold()
        self._row = 0
        """Position of the cursor in the walk, for when its env leaves."""
        self._feed_has_keys = False
        self._helping = False
        self._folds: dict[str | None, bool] = {}
        self._toggles: frozenset[str] = frozenset()
        self._search = ""
        self._line: int | None = None
        self._prompt: Prompt | None = None
        self._env_id: int | None = None
        self._alarm: Finding | None = None
        self._full = False
        self._scroll = 0
        self._sort, self._descending = "anomaly", True
        self._filter = ""

    @property
    def view(self) -> View:
        """What the snapshots have to carry."""
        return View(
            rows=ROWS,
            env_id=self._env_id,
            sort=self._sort,
            descending=self._descending,
            filter=self._filter,
            grouped=self.width >= COMPACT_BELOW,
        )

    @property
    def slots(self) -> bool:
        """Whether the run has slots."""
        return self.snapshot is not None and self.snapshot.run.slots_enabled

    @property
    def mode(self) -> Mode:
        """Where keys go."""
        if self._helping:
            return Mode.HELP
        if self._prompt is not None:
            return Mode.PROMPT
        if self._env_id is not None or self._alarm is not None:
            if self._full or self.width < COMPACT_BELOW:
                return Mode.FULL
            return Mode.FEED if self._feed_has_keys else Mode.DRAWER
        return Mode.FEED if self._feed_has_keys else Mode.BOARD

    @property
    def ui(self) -> Ui:
        """What renderers may know."""
        return Ui(
            mode=self.mode,
            folds=dict(self._folds),
            toggles=self._toggles,
            search=self._search,
            line=self._line,
            prompt=self._prompt,
            env_id=self._env_id,
            alarm=self._alarm,
            full=self._full,
            scroll=self._scroll,
            playback=self.playback,
            recorded=self.recorded,
            notice=self.notice,
        )

    @property
    def feed(self) -> tuple[FeedLine, ...]:
        """The feed's lines that are shown, oldest first."""
        lines = self.scrollback.lines(self._toggles, self._search)
        if self._env_id is not None:
            lines = tuple(line for line in lines if line.env_id == self._env_id)
        return lines

    def take(self, snapshot: Snapshot) -> None:
        """The next snapshot; a feed line under the cursor stays there."""
        if self.snapshot is not None and snapshot.run.run_id != self.snapshot.run.run_id:
            self._close()
            self.cursor, self._row, self._line, self._folds = None, 0, None, {}
        self.snapshot = snapshot
        before = len(self.feed) if self._line is not None else 0
        added = self.scrollback.take(snapshot)
        if self._line is not None and added:
            self._line = max(0, min(self._line + len(self.feed) - before, len(self.feed) - 1))
        if self._alarm is not None:
            same = (finding for finding in snapshot.findings if finding.id == self._alarm.id)
            self._alarm = next(same, self._alarm)

    def drawn(self, walk: tuple[Place, ...], shown: Snapshot) -> bool:
        """A frame was drawn; true when the cursor had to move, so that it has to be drawn again."""
        self.walk, self.shown = walk, shown
        if self.cursor is None or not walk:
            return False
        if self.cursor in walk:
            self._row = walk.index(self.cursor)
            return False
        self._row = min(self._row, len(walk) - 1)
        self.cursor = walk[self._row]
        return True

    def press(self, key: str, character: str | None, now: float) -> None:
        """One key, by Textual's name; `character` is what it types, `now` monotonic seconds."""
        self.notice = None
        self.hold.press(self.shown, now)
        mode = self.mode
        if mode is Mode.PROMPT:
            self._type(key, character)
            return
        found = find(key, mode, slots=self.slots, replay=self.transport is not None)
        if found is not None:
            action: Callable[[int | str], None] = getattr(self, f"do_{found.action}")
            action(found.argument)

    def paste(self, text: str) -> None:
        """Text pasted into an open prompt."""
        if self._prompt is not None:
            self._prompt = self._prompt.insert(text)
            self._apply_prompt(self._prompt)

    def _type(self, key: str, character: str | None) -> None:
        prompt = self._prompt
        if prompt is None:
            return
        if key == "ctrl+c":
            self.leaving = True
        elif key == "escape":
            self._prompt = None
            self._apply_text(prompt.kind, prompt.before)
        elif key == "enter":
            self._prompt = None
            self.notice = prompt.error
        else:
            typed = character is not None and character.isprintable() and not key.startswith("ctrl+")
            self._prompt = prompt.insert(character or "") if typed else prompt.press(key)
            self._apply_prompt(self._prompt)

    def _apply_prompt(self, prompt: Prompt) -> None:
        if prompt.error is None:
            self._apply_text(prompt.kind, prompt.text.strip())

    def _apply_text(self, kind: str, text: str) -> None:
        if kind == "filter":
            if text != self._filter:
                self._filter = text
                self.hold.release()
        else:
            self._search, self._line = text, None

    def do_move(self, by: int | str) -> None:
        """The cursor over the board; an open drawer follows."""
        if not self.walk:
            return
        if self.cursor is None:
            self._row = 0
        self._row = min(max(0, self._row + int(by)), len(self.walk) - 1)
        self.cursor = self.walk[self._row]
        if (self._env_id is not None or self._alarm is not None) and isinstance(self.cursor, int):
            self._open(self.cursor)

    def _open(self, env_id: int) -> None:
        self._env_id, self._alarm, self._scroll, self._line = env_id, None, 0, None
        self.cursor = env_id

    def _close(self) -> None:
        self._env_id, self._alarm, self._full, self._scroll, self._line = None, None, False, 0, None

    def do_open(self, _: int | str) -> None:
        """The env under the cursor into the drawer; a closed lane opens."""
        place = self.cursor if self.cursor is not None else next(iter(self.walk), None)
        if isinstance(place, LaneAt):
            self._folds[place.gpu_id] = True
        elif place is not None:
            self._open(place)

    def do_close(self, _: int | str) -> None:
        """Close the drawer."""
        self._close()

    def do_outlier(self, step: int | str) -> None:
        """The drawer on the next env that is not OK, in the board's order; round at the ends."""
        if self.shown is None:
            return
        bad = [env.env_id for env in self.shown.envs if env.status != "ok"]
        if not bad:
            self.notice = "no other environment stands out"
            return
        here = bad.index(self._env_id) if self._env_id in bad else -1 if int(step) > 0 else 0
        self._open(bad[(here + int(step)) % len(bad)])

    def do_full(self, _: int | str) -> None:
        """The drawer on the full screen, or beside the board."""
        self._full = not self._full
        self._scroll = 0

    def do_scroll(self, by: int | str) -> None:
        """The text of drawer or help."""
        self._scroll = max(0, self._scroll + int(by))

    def clamp(self, most: int) -> None:
        """The last frame had only so many lines to scroll."""
        self._scroll = min(self._scroll, most)

    def do_line(self, by: int | str) -> None:
        """The feed's cursor so many lines back; before the newest it follows again."""
        at = (-1 if self._line is None else self._line) + int(by)
        self._line = None if at < 0 or not self.feed else min(at, len(self.feed) - 1)

    def do_open_line(self, _: int | str) -> None:
        """The env of the feed's line into the drawer."""
        lines = self.feed
        if not lines:
            return
        env_id = lines[-1 - (self._line or 0)].env_id
        if env_id is None:
            self.notice = "this line is about no single environment"
        else:
            self._open(env_id)
            self._feed_has_keys = False

    def do_toggle(self, kind: int | str) -> None:
        """Only that kind of lines, or no longer."""
        self._toggles = self._toggles ^ {str(kind)}
        self._line = None

    def do_alarm(self, number: int | str) -> None:
        """What the alarm with that number is about."""
        if self.shown is None:
            return
        rail = on_rail(self.shown)
        if not 1 <= int(number) <= len(rail):
            self.notice = f"there is no alarm {number}"
            return
        finding = rail[int(number) - 1]
        subject = finding.subject
        self._feed_has_keys = False
        if subject.scope == "env" and subject.id is not None and subject.id.isdecimal():
            self._open(int(subject.id))
            return
        self._env_id, self._alarm, self._scroll, self._line = None, finding, 0, None
        worst = (env for env in self.shown.envs if subject.scope == "gpu" and env.gpu_id == subject.id)
        first = next(worst, None)
        if first is not None:
            self._folds[first.gpu_id] = True
            self.cursor = first.env_id

    def do_sort(self, _: int | str) -> None:
        """By the next thing that the run reports."""
        columns = () if self.snapshot is None else self.snapshot.board.columns
        value = "reward" if "return" not in columns and "reward" in columns else "return"
        cycle = [
            name
            for name in ("anomaly", "env", value, "fps", "metric")
            if name in ("anomaly", "env", *columns)
        ]
        place = cycle.index(self._sort) + 1 if self._sort in cycle else 0
        self._sort = cycle[place % len(cycle)]
        self._descending = self._sort not in _ASCENDING_FIRST
        self.hold.release()

    def do_reverse(self, _: int | str) -> None:
        """The other way round."""
        self._descending = not self._descending
        self.hold.release()

    def do_filter(self, _: int | str) -> None:
        """Ask for a filter."""
        text = self._filter
        self._prompt = Prompt(kind="filter", text=text, at=len(text), before=text, slots=self.slots)

    def do_search(self, _: int | str) -> None:
        """Ask for words to search the feed for."""
        text = self._search
        self._prompt = Prompt(kind="search", text=text, at=len(text), before=text)

    def do_focus(self, panel: int | str) -> None:
        """Keys to the board or to the feed."""
        self._full = False
        if self.width < COMPACT_BELOW and panel == "board":
            self._close()
        elif self.width < COMPACT_BELOW and self._env_id is not None:
            self._search = f"env={self._env_id}"
            self._close()
        self._feed_has_keys = panel == "feed"
        self._line = None

    def do_next_panel(self, _: int | str) -> None:
        """Keys to the other panel."""
        self.do_focus("board" if self._feed_has_keys else "feed")

    def do_fold(self, _: int | str) -> None:
        """Fold the lane of the cursor, or unfold it."""
        place = self.cursor if self.cursor is not None else next(iter(self.walk), None)
        if self.shown is None or place is None or self.width < COMPACT_BELOW:
            return
        if isinstance(place, LaneAt):
            self._folds[place.gpu_id] = True
            return
        lanes = {env.env_id: env.gpu_id for env in self.shown.envs}
        if place in lanes:
            self._folds[lanes[place]] = False
            self.cursor = LaneAt(lanes[place])

    def do_home(self, _: int | str) -> None:
        """The overview, with the cursor on the worst env."""
        self._close()
        self.cursor, self._row = None, 0
        self._helping = self._feed_has_keys = False

    def do_help(self, _: int | str) -> None:
        """Help, or back from it."""
        self._helping = not self._helping
        self._scroll = 0

    def do_back(self, _: int | str) -> None:
        """Out of what was opened last."""
        if self._helping:
            self._helping, self._scroll = False, 0
        elif self.mode is Mode.FEED and (self._search or self._toggles):
            self._search, self._toggles, self._line = "", frozenset(), None
        elif self.mode is Mode.FEED:
            self._feed_has_keys, self._line = False, None
        elif self._env_id is not None or self._alarm is not None:
            self._close()
        elif self._filter:
            self._filter = ""
            self.hold.release()

    def do_leave(self, _: int | str) -> None:
        """Quit."""
        self.leaving = True
