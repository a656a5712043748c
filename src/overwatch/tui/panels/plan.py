"""Which lines the flight board shows: groups, rows and folds, as many as there is room for.

Never sorts: groups and rows keep the snapshot's order. By anomaly, envs that are not OK come before the
others. What does not fit folds into one line per lane. The row under the cursor is always among the lines.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from overwatch.snapshot import Env, Group
from overwatch.tui.context import LaneAt, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A lane's own line."""

    group: Group
    opened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One env."""

    env: Env


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Envs that are not shown: of one lane, or of the fleet where `group` is absent."""

    group: Group | None
    count: int
    all_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """Lanes that are not shown."""

    count: int


Item: TypeAlias = Head | Row | Fold | More


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The board's lines, and the places that the cursor walks over, in their order."""

    items: tuple[Item, ...]
    walk: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted of the lines."""

    lines: int
    cursor: Place | None
    worst_first: bool = True
    """The order is by anomaly, so that rows that are OK matter less than the others."""
    folds: Mapping[str | None, bool]
    """Lanes that the user opened (true) or closed."""


def worst_first(envs: tuple[Env, ...]) -> list[Env]:
    """Over all lanes those that are not OK, then the others, each in their order."""
    return [*(env for env in envs if env.status != "ok"), *(env for env in envs if env.status == "ok")]


def flat(envs: tuple[Env, ...], num_envs: int, wish: Wish) -> Plan:
    """One list over all lanes: by anomaly what is not OK first; the rest folded into one line."""
    lines, cursor = wish.lines, wish.cursor
    ordered = worst_first(envs) if wish.worst_first else list(envs)
    room = lines if num_envs <= lines else lines - 1
    shown = _with_cursor(ordered, max(0, room), cursor)
    items: list[Item] = [Row(env=env) for env in shown]
    if num_envs > len(shown) and lines > 0:
        items.append(_fold(None, ordered, len(shown), num_envs))
    return Plan(items=tuple(items[: max(0, lines)]), walk=tuple(env.env_id for env in ordered))


def grouped(groups: tuple[Group, ...], envs: tuple[Env, ...], wish: Wish) -> Plan:
    """A section a lane, worst first; lanes with nothing wrong are one line when space is short."""
    lines = wish.lines
    kept = groups if len(groups) <= lines else groups[: max(0, lines - 1)]
    members: dict[str | None, list[Env]] = {group.gpu_id: [] for group in kept}
    for env in envs:
        if env.gpu_id in members:
            members[env.gpu_id].append(env)
    counts = _allot(kept, members, wish, lines - (len(kept) < len(groups)))
    items: list[Item] = []
    for group in kept:
        items += _section(group, members[group.gpu_id], counts[group.gpu_id], wish.cursor)
    if len(kept) < len(groups) and lines > 0:
        items.append(More(count=len(groups) - len(kept)))
    return Plan(items=tuple(items[: max(0, lines)]), walk=_walk(items, members))


def _allot(
    groups: tuple[Group, ...], members: dict[str | None, list[Env]], wish: Wish, lines: int
) -> dict[str | None, int]:
    """How many rows each lane gets: first those that are not OK, then the others, a row a lane in turn."""
    counts: dict[str | None, int] = {group.gpu_id: 0 for group in groups}
    every = {name: len(rows) for name, rows in members.items()}
    bad = {name: sum(env.status != "ok" for env in rows) for name, rows in members.items()}
    if not wish.worst_first:
        bad = every
    all_fit = sum(_cost(group, every[group.gpu_id]) for group in groups) <= lines
    eager = [group for group in groups if bad[group.gpu_id] or all_fit] or list(groups)
    eager = [group for group in groups if wish.folds.get(group.gpu_id, group in eager)]
    used = len(groups)
    asked = {name: 1 if wish.folds.get(name) else 0 for name in every}
    for limits in (asked, bad, every):
        for group in _in_turn(eager, limits, counts):
            step = _cost(group, counts[group.gpu_id] + 1) - _cost(group, counts[group.gpu_id])
            if used + step > lines:
                return counts
            counts[group.gpu_id] += 1
            used += step
    return counts


def _in_turn(
    groups: list[Group], limits: dict[str | None, int], counts: dict[str | None, int]
) -> Iterator[Group]:
    while True:
        open_ones = [group for group in groups if counts[group.gpu_id] < limits[group.gpu_id]]
        if not open_ones:
            return
        yield from open_ones


def _cost(group: Group, rows: int) -> int:
    """Lines of a lane that shows `rows` envs."""
    if rows == 0:
        return 1
    return 1 + rows + (group.n_envs > rows)


def _section(group: Group, rows: list[Env], count: int, cursor: Place | None) -> list[Item]:
    if count == 0:
        return [Head(group=group, opened=False)]
    shown = _with_cursor(rows, count, cursor)
    items: list[Item] = [Head(group=group, opened=True), *(Row(env=env) for env in shown)]
    if group.n_envs > len(shown):
        items.append(_fold(group, rows, len(shown), group.n_envs))
    return items


def _with_cursor(rows: list[Env], count: int, cursor: Place | None) -> list[Env]:
    """The first `count` rows; a cursor below them takes the last place, so that the worst stay in sight."""
    if cursor is None or count == 0 or any(env.env_id == cursor for env in rows[:count]):
        return rows[:count]
    under = [env for env in rows[count:] if env.env_id == cursor]
    return [*rows[: count - 1], *under] if under else rows[:count]


def _fold(group: Group | None, rows: list[Env], num_shown: int, num_envs: int) -> Fold:
    unseen = num_envs - len(rows)
    return Fold(
        group=group,
        count=num_envs - num_shown,
        all_ok=all(env.status == "ok" for env in rows[num_shown:]) and _rest_ok(group, rows, unseen),
    )


def _rest_ok(group: Group | None, rows: list[Env], unseen: int) -> bool:
    """Whether those that the view did not even carry are all OK."""
    if group is None or unseen == 0:
        return unseen == 0 or (bool(rows) and rows[-1].status == "ok")
    carried_ok = sum(env.status == "ok" for env in rows)
    return group.counts.get("ok", 0) - carried_ok == unseen


def _walk(items: list[Item], members: dict[str | None, list[Env]]) -> tuple[Place, ...]:
    """Rows in sight and closed lanes; within the last open lane also what it hides."""
    heads = [item for item in items if isinstance(item, Head)]
    last = next((head.group.gpu_id for head in reversed(heads) if head.opened), None)
    walk: list[Place] = []
    for item in items:
        match item:
            case Row(env=env):
                if env.gpu_id != last:
                    walk.append(env.env_id)
            case Head(group=group, opened=opened):
                if not opened:
                    walk.append(LaneAt(group.gpu_id))
                elif group.gpu_id == last:
                    walk += [env.env_id for env in members[last]]
            case Fold() | More():
                continue
            case _:
                assert_never(item)
    return tuple(walk)
