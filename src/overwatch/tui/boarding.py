"""What keys do to the board and the drawer: cursor, sort, filter, folds, marks, what is opened.

Owns what the user sees of the fleet. Must not know prompts, help or drawing.
"""

from typing import Final

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import FeedLine, Finding, Snapshot, View
from overwatch.tui.context import COMPACT_BELOW, LaneAt, Place
from overwatch.tui.feeding import Feeding
from overwatch.tui.heat import Heat
from overwatch.tui.hold import Hold
from overwatch.tui.inspected import HostOf, Inspected, LaneOf, SlotOf
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.panels.heatmap import zoomed
from overwatch.tui.past import Past
from overwatch.tui.playback import Transport

ROWS: Final = 256
_ASCENDING_FIRST: Final = ("env", "return", "reward", "fps", "metric")
"""Sorts that begin with the lowest value: the worst return, the slowest env."""


class Boarding(Feeding):
    """The part of a session that is about the board and the drawer."""

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
        self.hold = Hold()
        self._row = 0
        """Position of the cursor in the walk, for when its env leaves."""
        self._folds: dict[str | None, bool] = {}
        self._env_id: int | None = None
        self._alarm: Finding | None = None
        self._inspected: Inspected | None = None
        self._pinned: frozenset[int] = frozenset()
        self.heat = Heat()
        self.past = Past()
        self._heat_step = 1
        self._mapped: str | None = None
        """What the heatmap in the board's place is of: `env`, `gpu`, or there is none."""
        self.copying = False
        """The user wants what is open, or the row under the cursor, in the clipboard."""
        self._full = False
        self._scroll = 0
        self._sort, self._descending = "anomaly", True
        self._filter = ""

    @property
    def opened(self) -> bool:
        """Whether the drawer is open."""
        return self._env_id is not None or self._alarm is not None or self._inspected is not None

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
    def feed(self) -> tuple[FeedLine, ...]:
        """The feed's lines that are shown, oldest first; with an env open all of its own."""
        if self._env_id is None:
            return super().feed
        lines = self.scrollback.lines(self._toggles, self._search)
        if self._env_id is not None:
            lines = tuple(line for line in lines if line.env_id == self._env_id)
        return lines

    @property
    def sorts(self) -> tuple[str, ...]:
        """What the board can be ordered by: only what the run reports."""
        columns = () if self.snapshot is None else self.snapshot.board.columns
        value = "reward" if "return" not in columns and "reward" in columns else "return"
        return tuple(
            name
            for name in ("anomaly", "env", value, "fps", "metric")
            if name in ("anomaly", "env", *columns)
        )

    def sort_by(self, name: str, *, descending: bool | None = None) -> None:
        """Order the board; without a direction the one in which the worst come first."""
        self._sort = name
        self._descending = name not in _ASCENDING_FIRST if descending is None else descending
        self.hold.release()

    def filter_by(self, text: str) -> None:
        """Show only envs that pass a filter; all without."""
        if text != self._filter:
            self._filter = text
            self.hold.release()

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

    def do_move(self, by: int | str) -> None:
        """The cursor over the board; an open drawer follows."""
        if not self.walk:
            return
        if self.cursor is None:
            self._row = 0
        self._row = min(max(0, self._row + int(by)), len(self.walk) - 1)
        self.cursor = self.walk[self._row]
        if self.opened and isinstance(self.cursor, int):
            self.open_env(self.cursor)

    def point_at_place(self, place: Place) -> None:
        """The cursor onto a row, which an open drawer follows; the row under it opens, an open lane folds."""
        self._feed_has_keys = False
        if place == self.cursor and not self.opened:
            self.do_open(0)
        elif isinstance(place, LaneAt) and place not in self.walk:
            self._folds[place.gpu_id] = False
            self.cursor = place
        else:
            self.cursor = place
            self._row = self.walk.index(place) if place in self.walk else self._row
            if self.opened and isinstance(place, int):
                self.open_env(place)

    def point_at_line(self, back: int) -> None:
        """The keys to the feed, its cursor onto a line; the line under it opens."""
        if self._feed_has_keys and self._line == back:
            self.do_open_line(0)
        else:
            self._feed_has_keys, self._line = True, back

    def open_env(self, env_id: int) -> None:
        """An env into the drawer, wherever it is on the board."""
        self._close_but_size()
        self._env_id = env_id
        self.cursor = env_id

    def _close(self) -> None:
        self._close_but_size()
        self._full = False

    def _close_but_size(self) -> None:
        self._env_id = self._alarm = self._inspected = self._line = None
        self._scroll = 0

    def do_open(self, _: int | str) -> None:
        """The env under the cursor into the drawer; a closed lane opens."""
        place = self.cursor if self.cursor is not None else next(iter(self.walk), None)
        if isinstance(place, LaneAt):
            self._folds[place.gpu_id] = True
        elif place is not None:
            self.open_env(place)

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
        self.open_env(bad[(here + int(step)) % len(bad)])

    def do_past(self, by: int | str) -> None:
        """The open environment so many seconds later, or earlier."""
        if self._env_id is not None and self._inspected is None:
            self.notice = self.past.step(int(by))

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

    def do_open_line(self, _: int | str) -> None:
        """The env of the feed's line into the drawer."""
        lines = self.feed
        if not lines:
            return
        env_id = lines[-1 - (self._line or 0)].env_id
        if env_id is None:
            self.notice = "this line is about no single environment"
        else:
            self.open_env(env_id)
            self._feed_has_keys = False

    def do_alarm(self, number: int | str) -> None:
        """What the alarm with that number is about."""
        if self.shown is None:
            return
        rail = on_rail(self.shown)
        if not 1 <= int(number) <= len(rail):
            self.notice = f"there is no alarm {number}"
            return
        self.open_finding(rail[int(number) - 1])

    def open_finding(self, finding: Finding) -> None:
        """What a finding is about: its env, or itself, with the cursor on its lane's worst env."""
        if self.shown is None:
            return
        subject = finding.subject
        self._feed_has_keys = False
        if subject.scope == "env" and subject.id is not None and subject.id.isdecimal():
            self.open_env(int(subject.id))
            return
        self._close_but_size()
        self._alarm = finding
        worst = (env for env in self.shown.envs if subject.scope == "gpu" and env.gpu_id == subject.id)
        first = next(worst, None)
        if first is not None:
            self._folds[first.gpu_id] = True
            self.cursor = first.env_id

    def do_sort(self, _: int | str) -> None:
        """By the next thing that the run reports."""
        cycle = self.sorts
        place = cycle.index(self._sort) + 1 if self._sort in cycle else 0
        self.sort_by(cycle[place % len(cycle)])

    def do_reverse(self, _: int | str) -> None:
        """The other way round."""
        self._descending = not self._descending
        self.hold.release()

    def do_focus(self, panel: int | str) -> None:
        """Keys to the board or to the feed."""
        self._full = False
        if self.width < COMPACT_BELOW and panel == "board":
            self._close()
        elif self.width < COMPACT_BELOW and self._env_id is not None:
            self.search_for(f"env={self._env_id}")
            self._close()
        self._feed_has_keys = panel == "feed"
        self._line = None

    def do_next_panel(self, _: int | str) -> None:
        """Keys to the other panel."""
        self.do_focus("board" if self._feed_has_keys else "feed")

    def unfold(self, gpu_id: str) -> None:
        """Open a lane, with the cursor on its worst env."""
        self._folds[gpu_id] = True
        envs = () if self.shown is None else self.shown.envs
        self.cursor = next((env.env_id for env in envs if env.gpu_id == gpu_id), LaneAt(gpu_id))

    def do_inspect(self, _: int | str) -> None:
        """The lane under the cursor; of an open env the next slot; of the feed the whole line."""
        if self._feed_has_keys and self.feed:
            line = self.feed[-1 - (self._line or 0)]
            self._close_but_size()
            self._inspected, self._feed_has_keys = line, False
        elif self._env_id is not None:
            self._next_slot(self._env_id)
        else:
            self._inspect_lane()

    def _next_slot(self, env_id: int) -> None:
        envs = () if self.shown is None else self.shown.envs
        known = [item for env in envs if env.env_id == env_id for item in env.slots.items()]
        known.sort(key=lambda item: parse_stage(item[1].stage) is Stage.DORMANT)
        names = [name for name, _ in known]
        if not names:
            self.notice = "this environment has no slots"
            return
        here = self._inspected.slot if isinstance(self._inspected, SlotOf) else None
        place = names.index(here) + 1 if here in names else 0
        self._inspected, self._scroll = SlotOf(env_id, names[place % len(names)]), 0

    def do_host(self, _: int | str) -> None:
        """The host with its busiest processes, or back."""
        shown = isinstance(self._inspected, HostOf)
        self._close_but_size()
        self._feed_has_keys = False
        self._inspected = None if shown else HostOf()

    def _inspect_lane(self) -> None:
        place = self.cursor if self.cursor is not None else next(iter(self.walk), None)
        envs = () if self.shown is None else self.shown.envs
        lane = place.gpu_id if isinstance(place, LaneAt) else None
        lane = lane or next((env.gpu_id for env in envs if env.env_id == place), None)
        if lane is None:
            self.notice = "there is no lane under the cursor"
            return
        self._close_but_size()
        self._inspected = LaneOf(lane)

    def do_copy(self, _: int | str) -> None:
        """What is open, or the row under the cursor, into the clipboard."""
        self.copying = True

    def do_pin(self, _: int | str) -> None:
        """Mark the env under the cursor, or no longer."""
        place = self._env_id if self._env_id is not None else self.cursor
        place = next(iter(self.walk), None) if place is None else place
        if isinstance(place, int):
            self._pinned ^= {place}

    def do_pinned(self, _: int | str) -> None:
        """Show the marked envs alone, or all again."""
        wanted = "env=" + ",".join(map(str, sorted(self._pinned)))
        if self._filter == wanted:
            self.filter_by("")
        elif self._pinned:
            self.filter_by(wanted)
        else:
            self.notice = "nothing is marked; m marks the environment under the cursor"

    def do_map(self, of: int | str) -> None:
        """The board as a heatmap of environments or of GPUs, or back."""
        self._close()
        if of == "gpu":
            self._mapped = None if self._mapped == "gpu" else "gpu"
        else:
            self._mapped = "env" if self._mapped is None else None

    def do_zoom(self, by: int | str) -> None:
        """More or less time in a cell of the heatmap."""
        self._heat_step = zoomed(self._heat_step, int(by))

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
