"""What keys do to the board, the drawer and the feed: cursors, sort, filter, folds, marks, what is opened.

And from a line of the feed to its finding, and back. Must not know prompts, help or drawing.
"""

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import Finding
from overwatch.tui.context import COMPACT_BELOW, HostOf, LaneAt, LaneOf, Place, SlotOf
from overwatch.tui.memory import STEPS, finding_of, line_of
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.session import Session


def move(session: Session, by: int) -> None:
    """The cursor over the board; an open drawer follows."""
    board = session.board
    if not board.walk:
        return
    if board.cursor is None:
        board.row = 0
    board.row = min(max(0, board.row + by), len(board.walk) - 1)
    board.cursor = board.walk[board.row]
    _follow(session)


def _follow(session: Session) -> None:
    if session.ui.opened and isinstance(session.board.cursor, int):
        open_env(session, session.board.cursor)


def click_place(session: Session, place: Place) -> None:
    """The cursor onto a row, which an open drawer follows; the row under it opens, an open lane folds."""
    board, ui = session.board, session.ui
    ui.feed_has_keys = False
    if place == board.cursor and not ui.opened:
        open_place(session)
    elif isinstance(place, LaneAt) and place not in board.walk:
        ui.folds[place.gpu_id] = False
        board.cursor = place
    else:
        board.cursor = place
        board.row = board.walk.index(place) if place in board.walk else board.row
        _follow(session)


def open_env(session: Session, env_id: int) -> None:
    """An env into the drawer, wherever it is on the board."""
    session.ui.clear_drawer()
    session.ui.env_id = session.board.cursor = env_id


def open_place(session: Session) -> None:
    """The env under the cursor into the drawer; a closed lane opens."""
    place = session.board.place
    if isinstance(place, LaneAt):
        session.ui.folds[place.gpu_id] = True
    elif place is not None:
        open_env(session, place)


def close(session: Session) -> None:
    """Close the drawer."""
    session.ui.close()


def outlier(session: Session, step: int) -> None:
    """The drawer on the next env that is not OK, in the board's order; round at the ends."""
    if session.shown is None:
        return
    bad = [env.env_id for env in session.shown.envs if env.status != "ok"]
    if not bad:
        session.ui.notice = "no other environment stands out"
        return
    env_id = session.ui.env_id
    here = bad.index(env_id) if env_id in bad else -1 if step > 0 else 0
    open_env(session, bad[(here + step) % len(bad)])


def past(session: Session, by: int) -> None:
    """The open environment so many seconds later, or earlier."""
    if session.ui.env_id is not None and session.ui.inspected is None:
        session.ui.notice = session.ui.past.step(by)


def full(session: Session) -> None:
    """The drawer on the full screen, or beside the board."""
    session.ui.full, session.ui.scroll = not session.ui.full, 0


def scroll(session: Session, by: int) -> None:
    """The text of drawer or help."""
    session.ui.scroll = max(0, session.ui.scroll + by)


def open_alarm(session: Session, number: int) -> None:
    """What the alarm with that number is about."""
    if session.shown is None:
        return
    rail = on_rail(session.shown)
    if not 1 <= number <= len(rail):
        session.ui.notice = f"there is no alarm {number}"
        return
    open_finding(session, rail[number - 1])


def open_finding(session: Session, finding: Finding) -> None:
    """What a finding is about: its env, or itself, with the cursor on its lane's worst env."""
    if session.shown is None:
        return
    subject, ui = finding.subject, session.ui
    ui.feed_has_keys = False
    if subject.scope == "env" and subject.id is not None and subject.id.isdecimal():
        open_env(session, int(subject.id))
        return
    ui.clear_drawer()
    ui.alarm = finding
    worst = (env for env in session.shown.envs if subject.scope == "gpu" and env.gpu_id == subject.id)
    first = next(worst, None)
    if first is not None:
        ui.folds[first.gpu_id] = True
        session.board.cursor = first.env_id


def sort_next(session: Session) -> None:
    """By the next thing that the run reports."""
    cycle, sort = session.sorts, session.board.sort
    place = cycle.index(sort) + 1 if sort in cycle else 0
    session.board.sort_by(cycle[place % len(cycle)])


def reverse(session: Session) -> None:
    """The other way round."""
    session.board.sort_by(session.board.sort, descending=not session.board.descending)


def focus(session: Session, panel: str) -> None:
    """Keys to the board or to the feed."""
    ui = session.ui
    ui.full = False
    if session.width < COMPACT_BELOW and panel == "board":
        ui.close()
    elif session.width < COMPACT_BELOW and ui.env_id is not None:
        ui.search = f"env={ui.env_id}"
        ui.close()
    ui.feed_has_keys, ui.line = panel == "feed", None


def next_panel(session: Session) -> None:
    """Keys to the other panel."""
    focus(session, "board" if session.ui.feed_has_keys else "feed")


def unfold(session: Session, gpu_id: str) -> None:
    """Open a lane, with the cursor on its worst env."""
    session.ui.folds[gpu_id] = True
    own = (env.env_id for env in session.envs if env.gpu_id == gpu_id)
    session.board.cursor = next(own, LaneAt(gpu_id))


def inspect(session: Session) -> None:
    """The lane under the cursor; of an open env the next slot; of the feed the whole line."""
    ui, line = session.ui, session.feed_line
    if ui.feed_has_keys and line is not None:
        ui.clear_drawer()
        ui.inspected, ui.feed_has_keys = line, False
    elif ui.env_id is not None:
        _next_slot(session, ui.env_id)
    else:
        _inspect_lane(session)


def _next_slot(session: Session, env_id: int) -> None:
    ui = session.ui
    known = [item for env in session.envs if env.env_id == env_id for item in env.slots.items()]
    known.sort(key=lambda item: parse_stage(item[1].stage) is Stage.DORMANT)
    names = [name for name, _ in known]
    if not names:
        ui.notice = "this environment has no slots"
        return
    here = ui.inspected.slot if isinstance(ui.inspected, SlotOf) else None
    place = names.index(here) + 1 if here in names else 0
    ui.inspected, ui.scroll = SlotOf(env_id, names[place % len(names)]), 0


def _inspect_lane(session: Session) -> None:
    place = session.board.place
    lane = place.gpu_id if isinstance(place, LaneAt) else None
    lane = lane or next((env.gpu_id for env in session.envs if env.env_id == place), None)
    if lane is None:
        session.ui.notice = "there is no lane under the cursor"
        return
    session.ui.clear_drawer()
    session.ui.inspected = LaneOf(lane)


def host(session: Session) -> None:
    """The host with its busiest processes, or back."""
    shown = isinstance(session.ui.inspected, HostOf)
    session.ui.clear_drawer()
    session.ui.feed_has_keys = False
    session.ui.inspected = None if shown else HostOf()


def copy(session: Session) -> None:
    """What is open, or the row under the cursor, into the clipboard."""
    session.requests.copying = True


def pin(session: Session) -> None:
    """Mark the env under the cursor, or no longer."""
    place = session.board.place if session.ui.env_id is None else session.ui.env_id
    if isinstance(place, int):
        session.ui.pinned ^= {place}


def show_pinned(session: Session) -> None:
    """Show the marked envs alone, or all again."""
    wanted = "env=" + ",".join(map(str, sorted(session.ui.pinned)))
    if session.board.filter == wanted:
        session.board.filter_by("")
    elif session.ui.pinned:
        session.board.filter_by(wanted)
    else:
        session.ui.notice = "nothing is marked; m marks the environment under the cursor"


def heatmap(session: Session, of: str) -> None:
    """The board as a heatmap of environments or of GPUs, or back."""
    ui = session.ui
    ui.close()
    if of == "gpu":
        ui.heat_of = None if ui.heat_of == "gpu" else "gpu"
    else:
        ui.heat_of = "env" if ui.heat_of is None else None


def zoom(session: Session, by: int) -> None:
    """More or less time in a cell of the heatmap."""
    ui = session.ui
    place = STEPS.index(ui.heat_step) if ui.heat_step in STEPS else 0
    ui.heat_step = STEPS[min(max(0, place + by), len(STEPS) - 1)]


def fold(session: Session) -> None:
    """Fold the lane of the cursor, or unfold it."""
    place, ui = session.board.place, session.ui
    if session.shown is None or place is None or session.width < COMPACT_BELOW:
        return
    if isinstance(place, LaneAt):
        ui.folds[place.gpu_id] = True
        return
    lanes = {env.env_id: env.gpu_id for env in session.shown.envs}
    if place in lanes:
        ui.folds[lanes[place]] = False
        session.board.cursor = LaneAt(lanes[place])


def search(session: Session, text: str) -> None:
    """Show only lines with all of these words; all without."""
    session.ui.search, session.ui.line = text, None


def feed_line(session: Session, by: int) -> None:
    """The feed's cursor so many lines back; before the newest it follows again."""
    ui, count = session.ui, len(session.feed)
    at = (-1 if ui.line is None else ui.line) + by
    ui.line = None if at < 0 or not count else min(at, count - 1)


def click_line(session: Session, back: int) -> None:
    """The keys to the feed, its cursor onto a line; the line under it opens."""
    if session.ui.feed_has_keys and session.ui.line == back:
        open_line(session)
    else:
        session.ui.feed_has_keys, session.ui.line = True, back


def open_line(session: Session) -> None:
    """The env of the feed's line into the drawer."""
    shown = session.feed_line
    if shown is None:
        return
    if shown.env_id is None:
        session.ui.notice = "this line is about no single environment"
    else:
        open_env(session, shown.env_id)
        session.ui.feed_has_keys = False


def toggle_lines(session: Session, kind: str) -> None:
    """Only that kind of lines, or no longer."""
    session.ui.toggles ^= {kind}
    session.ui.line = None


def feed_level(session: Session) -> None:
    """Every line, or only facts and warnings again."""
    session.ui.facts, session.ui.line = not session.ui.facts, None


def pause_feed(session: Session) -> None:
    """Stop following at the newest line, or follow again."""
    session.ui.line = None if session.ui.line is not None else 0 if session.feed else None


def rewind(session: Session) -> None:
    """The recording to the moment of the line under the cursor."""
    shown = session.feed_line
    if session.transport is not None and shown is not None:
        session.transport.seek(shown.time)
        session.ui.line = None


def moment(session: Session) -> None:
    """The feed where the finding began that the keys are about; a recording goes there too."""
    ui, finding = session.ui, session.finding
    if finding is None:
        ui.notice = "there is no finding about what is under the cursor; A lists them all"
        return
    ui.page = None
    ui.close()
    ui.toggles, ui.search, ui.feed_has_keys, ui.facts = frozenset(), "", True, False
    if session.transport is not None:
        session.transport.seek(finding.since)
        return
    ui.line = line_of(finding, session.feed)
    if ui.line is None:
        ui.notice = "the feed here does not go back to when this began; r opens the recording"


def cause(session: Session) -> None:
    """The finding that the feed's line belongs to."""
    shown = session.feed_line
    if session.snapshot is None or shown is None:
        return
    finding = finding_of(shown, session.snapshot.findings)
    if finding is None:
        session.ui.notice = "this line belongs to no finding"
        return
    session.ui.clear_drawer()
    session.ui.alarm, session.ui.feed_has_keys = finding, False
