"""What a rule finds wrong, and how it becomes a finding over time.

What is wrong now is joined with what was open, waiting or cooling down before: held problems open, gone ones
clear, linger, leave and cool down. Pure.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from overwatch.catalog.titles import SLOWS

SECOND_NS: Final = 1_000_000_000


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How a problem becomes a finding and stops being one; nanoseconds of the stamp clock."""

    hold: int = 0
    """It must last this long before it opens."""
    clear: int = 0
    """It must be gone this long before it clears."""
    cooldown: int = 0
    """What comes again within this long after it cleared goes on, and clears after so long from then on."""
    cooldown_updates: int = 0
    """And for so many updates, however long they take."""


FACT: Final = Patience()
"""A fact needs no patience: a crash, a NaN, the end of a run."""
UPDATES: Final = Patience(cooldown=30 * SECOND_NS, cooldown_updates=20)
"""Its hold is counted in updates by the rule itself; a second and a minute may both be an update."""
STEADY: Final = Patience(hold=2 * SECOND_NS, clear=3 * SECOND_NS, cooldown=30 * SECOND_NS)
"""A judgement about levels and counts, which may flicker at its limit."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong now."""

    code: str
    severity: str = "warning"
    scope: str = "run"
    subject: str | None = None
    """What of the scope it is about, where there are several."""
    at: int
    """Producer's or receive time at which it became true, Unix ns."""
    message: str
    hint: str
    factors: tuple[str, ...] = ()
    symptoms: int = 0
    """Envs or rows that are off because of this, and have no finding of their own."""
    patience: Patience = FACT
    absorbs: tuple[str, ...] = ()
    """Codes of findings that this one takes over, with their age; they leave at once and have not cleared."""
    names: int | None = None
    """The env that the hint names, where it is about more than one."""
    usual: float | None = None
    """What was usual when it opened, in the rule's own unit: what it does later must not become usual."""
    stands: float | None = None
    """The level at which the rule lets go again, fixed when it opened."""

    @property
    def id(self) -> str:
        """Stable identity: what, about which subject."""
        return f"{self.code}:{self.scope}:{self.subject or ''}"


of_policy: Final = partial(Problem, scope="policy", patience=UPDATES)
"""A problem of the policy that its updates show."""


def env_of(problem_id: str) -> int | None:
    """The env that a problem of this id is about, `None` where it is about something else."""
    _code, scope, subject = problem_id.split(":", 2)
    return int(subject) if scope == "env" else None


T = TypeVar("T")

LINGER_NS: Final = 5_000_000_000
"""A finding stays this long after it cleared, so that a flicker can be read."""
MAX_OPEN: Final = 100
"""Findings of a run that are held at once; one of them counts how many more there are."""
OVERFLOW: Final = "too-many-findings"
REMOVED: Final = "the env to look at was removed"
"""Hint of a finding that named one."""
SEVERITIES: Final = ("critical", "warning", "info")
"""Worst first."""


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that is or was just now true."""

    problem: Problem
    since: int
    cleared_at: int | None = None
    gone_at: int | None = None
    """When its cause was last seen to go, while it is not yet believed, or when it cleared; on the clock of
    the data..."""
    gone_update: int = 0
    """...and by updates."""
    again: bool = False
    """Whether it came again after it had cleared."""
    clock: int = 0
    """When it opened, on the clock of the data."""
    acknowledged: bool = False
    """Whether an operator has seen it, as bad as it is now."""
    paused_ns: int = 0
    """How long the run was paused while it was open."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that has not lasted long enough."""

    clock: int
    """When it was first true, on the clock of the data."""
    since: int


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """All findings' memory."""

    open: dict[str, Open] = {}
    waiting: dict[str, Waiting] = {}
    cooling: dict[str, Open] = {}
    """Findings that cleared, and go on if they come again soon."""


class Now(NamedTuple):
    """When a tick is."""

    tick: int
    """By the reader's clock."""
    clock: int
    """By the clock of the data."""
    updates: int = 0
    """By what the policy has learned: its updates so far."""
    paused_ns: int = 0
    """How much of the time since the tick before the run was paused."""


def follow(before: Followed, problems: Sequence[Problem], now: Now) -> Followed:
    """Findings after this tick: held ones open, gone ones clear, linger, leave and cool down.

    Patience is counted on the clock of the data; how long a cleared one can be read, on that of the reader.
    """
    if not problems and not (before.open or before.waiting or before.cooling):
        return before
    clock = now.clock
    current: dict[str, Open] = {}
    waiting: dict[str, Waiting] = {}
    cooling = {key: item for key, item in before.cooling.items() if _is_cooling(item, now)}
    for problem in problems:
        known = before.open.get(problem.id)
        if known is not None and known.cleared_at is None:
            current[problem.id] = _go_on(known, problem, now.paused_ns)
            continue
        first = before.waiting.get(problem.id, Waiting(clock=clock, since=problem.at))
        if clock - first.clock >= problem.patience.hold:
            cooled = cooling.pop(problem.id, None)
            current[problem.id] = _opened(problem, first.since, clock, cooled, before)
        else:
            waiting[problem.id] = first
    absorbed = {code for item in current.values() for code in item.problem.absorbs}
    for key, known in before.open.items():
        if key not in current and known.problem.code not in absorbed:
            _fade(key, known, now, current, cooling)
    kept = _within_cap(current, before, now.tick)
    # What is left out has lasted long enough, and goes on waiting for room.
    full = {key: Waiting(clock=0, since=item.since) for key, item in current.items() if key not in kept}
    return Followed(open=kept, waiting=waiting | full, cooling=cooling)


def _opened(problem: Problem, since: int, clock: int, cooled: Open | None, before: Followed) -> Open:
    """A finding that opens: what came again goes on; what explains others better is as old as they are."""
    opened = Open(problem=problem, since=since, clock=clock)
    if cooled is not None:
        opened = msgspec.structs.replace(_go_on(cooled, problem), again=True)
    known = (item for item in before.open.values() if item.cleared_at is None)
    ages = [item.since for item in known if item.problem.code in problem.absorbs]
    return msgspec.structs.replace(opened, since=min([opened.since, *ages]))


def _within_cap(current: dict[str, Open], before: Followed, tick: int) -> dict[str, Open]:
    """The worst findings, of those the oldest; how many were left out is a finding itself."""
    announced_id = f"{OVERFLOW}:run:"
    order = sorted(current.keys() - {announced_id}, key=lambda key: rank_of(current[key]))
    if len(order) <= MAX_OPEN:
        return current
    beyond = [current[key].problem.severity for key in order[MAX_OPEN - 1 :]]
    reported = ", ".join(f"{beyond.count(word):,} {word}" for word in SEVERITIES if word in beyond)
    announced = Problem(
        code=OVERFLOW,
        severity=min(beyond, key=SEVERITIES.index),
        at=tick,
        message=f"{len(beyond):,} more findings are not shown: {reported}",
        hint="look for the one cause of those that are",
        symptoms=len(beyond),
    )
    known = before.open.get(announced_id)
    is_new = known is None or known.cleared_at is not None
    item = Open(problem=announced, since=tick) if known is None or is_new else _go_on(known, announced)
    return {key: current[key] for key in order[: MAX_OPEN - 1]} | {announced_id: item}


def rank_of(item: Open) -> tuple[bool, int, int, int, int, str]:
    """The order of findings: by severity; what wastes a run, or some envs, before what slows it; by age."""
    problem = item.problem
    wastes = 2 if problem.code in SLOWS else int(problem.code.startswith("env-"))
    worst = SEVERITIES.index(problem.severity), wastes
    return item.cleared_at is not None, *worst, item.since, -problem.symptoms, problem.id


def _go_on(known: Open, now: Problem, paused_ns: int = 0) -> Open:
    """An open finding with its problem's newest words; one that got worse has not been seen yet."""
    before = known.problem
    # What was usual is known from the opening on, or from when the rule first names it.
    named = now if before.usual is None else before
    problem = msgspec.structs.replace(now, usual=named.usual, stands=named.stands)
    worse = SEVERITIES.index(now.severity) < SEVERITIES.index(before.severity)
    return Open(
        problem=problem,
        since=known.since,
        acknowledged=known.acknowledged and not worse,
        paused_ns=known.paused_ns + paused_ns,
        again=known.again,
        clock=known.clock,
    )


def acknowledge(before: Followed, ids: Collection[str]) -> Followed:
    """Findings of which these were seen by an operator; ids of none are passed over."""
    if before.open.keys().isdisjoint(ids):
        return before
    seen = {
        key: msgspec.structs.replace(item, acknowledged=True) if key in ids else item
        for key, item in before.open.items()
    }
    return msgspec.structs.replace(before, open=seen)


def forget(before: Followed, env_ids: frozenset[int]) -> Followed:
    """Findings without those about these envs: who is not there is neither ill nor healed."""
    if not env_ids:
        return before
    return Followed(
        open={key: _unnamed(item, env_ids) for key, item in _without(before.open, env_ids).items()},
        waiting=_without(before.waiting, env_ids),
        cooling=_without(before.cooling, env_ids),
    )


def _unnamed(item: Open, env_ids: frozenset[int]) -> Open:
    """A finding whose hint leads to no env that is not there any more."""
    if item.problem.names not in env_ids:
        return item
    problem = msgspec.structs.replace(item.problem, hint=REMOVED, names=None)
    return msgspec.structs.replace(item, problem=problem)


def _without(items: dict[str, T], env_ids: frozenset[int]) -> dict[str, T]:
    return {key: item for key, item in items.items() if env_of(key) not in env_ids}


A_MOMENT_NS: Final = 10 * SECOND_NS


def stood_last(before: Followed, clock: int) -> list[Problem]:
    """Criticals that cleared just before the end and had stood for more than a moment: it ended in them."""
    return [
        msgspec.structs.replace(item.problem, patience=FACT)
        for item in before.cooling.values()
        if item.problem.severity == "critical" and _is_cooling(item, Now(clock, clock))
        and (item.gone_at or 0) - item.clock >= A_MOMENT_NS
    ]  # fmt: skip


def standing(before: Followed) -> dict[str, Problem]:
    """Problems that are open now, by id, as they stood at the last tick."""
    return {key: item.problem for key, item in before.open.items() if item.cleared_at is None}


def _is_cooling(item: Open, now: Now) -> bool:
    patience = item.problem.patience
    for_ns, updates = now.clock - (item.gone_at or 0), now.updates - item.gone_update
    return for_ns < patience.cooldown or updates < patience.cooldown_updates


def _fade(key: str, known: Open, now: Now, current: dict[str, Open], cooling: dict[str, Open]) -> None:
    """Carry on a finding whose cause is not seen at this moment."""
    tick, clock, updates, paused_ns = now
    if known.cleared_at is not None:
        if tick - known.cleared_at < LINGER_NS:
            current[key] = known
        return
    patience = known.problem.patience
    gone_at, gone_update = (clock, updates) if known.gone_at is None else (known.gone_at, known.gone_update)
    # What comes and goes is trouble that lasts; of what is only to be known nobody waits for the end.
    lasts = known.again and known.problem.severity != "info"
    clear = max(patience.clear, patience.cooldown) if lasts else patience.clear
    waits = clock - gone_at < clear or (lasts and updates - gone_update < patience.cooldown_updates)
    current[key] = msgspec.structs.replace(
        known, paused_ns=known.paused_ns + paused_ns, cleared_at=None if waits else tick,
        gone_at=gone_at if waits else clock, gone_update=gone_update if waits else updates,
    )  # fmt: skip
    if patience.cooldown and not waits:
        cooling[key] = current[key]
