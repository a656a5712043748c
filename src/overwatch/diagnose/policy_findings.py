"""Findings about the policy: rows beyond their limits, what they mean together, returns that fall.

Causes take their symptoms: a policy that does not move and a collapse take all rows and the fall of returns,
a compound its parts, a row beyond its limit its own drift. Of compounds the first that holds takes its rows,
so that a row is reported once; one that is open goes on while any of its rows does. A policy with little
entropy that earns its best is solved, and an early stop that kept KL near its target has worked: both are
info, never a warning.

One update that moved the policy far more than its neighbours do is a spike of KL: no trend, so it is info for
a few updates; one that left the target far behind is a warning. A program that is compiled again while it
trains waits for the compiler each time. Evaluations are judged as the training return is, and count more: a
policy whose evaluation falls is worse, whatever it earns in training. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, KL, Metric, Scope
from overwatch.catalog.compiling import RECOMPILES
from overwatch.catalog.episodes import EVAL_RETURN
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    LEARNING_RATE,
    RETURN,
    UPDATE_TIME,
    VALUE_LOSS,
)
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.factors import fleet_fell
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.hacking import Hacking, hacking, hacking_problem
from overwatch.diagnose.levels import (
    BLOCK,
    FEW,
    Levels,
    Outlook,
    Standing,
    observe,
    of_return,
    remember,
    standing,
)
from overwatch.diagnose.policy_rows import (
    CRITIC,
    has_converged,
    is_beyond,
    is_judged,
    is_warm,
    returns_vary,
    row_problems,
    trend,
)
from overwatch.diagnose.problem import SEVERITIES, STEADY, UPDATES, Problem, of_policy
from overwatch.diagnose.ranks import Away, away, rank_problems
from overwatch.diagnose.signals import (
    CREEPING,
    DIVERGED,
    EXPLORES,
    LATELY,
    MOVING,
    RATE,
    VARIED,
    ZERO,
    critic,
    drifts,
    frozen,
    impossible,
    moved,
    since_first,
    spikes,
    starved,
)
from overwatch.events import EarlyStopped
from overwatch.state.arrays import Derived
from overwatch.state.policy import Series
from overwatch.state.run import RunState

KL_SPIKE: Final = "kl-spike"
RECOMPILED_MOSTLY: Final = 3
"""Of these with a recompile, from which it goes on and on."""


def recompiles(state: RunState) -> Problem | None:
    """Recompiles of the newest updates; a count that falls is another process's."""
    series = state.policy.get(RECOMPILES.name)
    newest = [] if series is None else [value for value in series.history.items if value is not None]
    with_one = sum(after > before for before, after in pairwise(newest[-LATELY - 1 :]))
    if series is None or not with_one:
        return None
    count, line = newest[-1], state.recompiled
    why = {} if line is None else line.fields
    reason = (f"{why.get('function', '')}: {why['reason']}",) if why.get("reason") else ()
    return of_policy(
        code="recompiles",
        severity="warning" if with_one >= RECOMPILED_MOSTLY else "info",
        subject=RECOMPILES.short,
        at=series.at,
        message=(
            f"{count:.0f} recompile{'' if count == 1 else 's'} after warm-up, "
            f"in {with_one} of the last {LATELY} updates"
        ),
        hint="keep shapes and flags the same in each update, mark what changes as dynamic, or compile less",
        factors=reason,
    )


COLLAPSE: Final = "policy-collapse"
COLLAPSED_ROWS: Final = 2
STEPS: Final = (KL.short, CLIP_FRACTION.short)
"""Rows that show how far an update moves the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compound:
    """What rows mean together."""

    code: str
    needs: tuple[frozenset[str], ...]
    """Of each group one row must be beyond its limit, or one code be reported."""
    takes: frozenset[str]
    """Rows and codes that are its parts."""
    words: str
    hint: str


_WEIGHTS: Final = frozenset(
    {"ratio_max", "ratio_min", "kl_max", "kl_joint", "clip_fraction_up", "clip_fraction_down"}
)

COMPOUNDS: Final = (
    Compound(
        code="steps-too-large",
        needs=(frozenset({KL.short}), frozenset({CLIP_FRACTION.short}) | _WEIGHTS),
        takes=frozenset({KL.short, CLIP_FRACTION.short, KL_SPIKE}) | _WEIGHTS,
        words="updates are too large",
        hint="lower the learning rate or the number of epochs, or set target_kl",
    ),
    Compound(
        code="critic-failing",
        needs=(frozenset({EXPLAINED_VARIANCE.short}), frozenset({VALUE_LOSS.short})),
        takes=frozenset({EXPLAINED_VARIANCE.short, VALUE_LOSS.short}),
        words="the critic fails",
        hint="check the scale of rewards; more epochs or a larger share of the loss for the critic",
    ),
)  # fmt: skip
"""Checked in this order."""


def joined(problems: list[Problem], open_: Mapping[str, Problem]) -> list[Problem]:
    """The same problems, with those that are one thing reported as one."""
    left, found = list(problems), list[Problem]()
    for compound in COMPOUNDS:
        parts = [problem for problem in left if _names(problem) & compound.takes]
        if parts and (f"{compound.code}:policy:" in open_ or _holds(compound, parts)):
            found.append(_reported(compound, parts))
            left = [problem for problem in left if problem not in parts]
    return [*found, *left]


def collapse_of(
    problems: list[Problem],
    fallen: list[Problem],
    *,
    falling: bool,
    is_open: bool = False,
    succeeds: bool = False,
    signs: tuple[str, ...] = (),
) -> Problem | None:
    """The collapse that these rows and the fall of returns make up; `None` where they are none.

    It begins where returns fell and a row beyond its limit, or another of the `signs`, shows why; where
    several rows are critical, or one is and entropy is beyond its limit; and where steps are too large while
    entropy is `falling` fast, unless the policy `succeeds`. A collapse that `is_open` goes on while returns
    are down, a row is critical, or several rows are beyond their limits: one better update is no recovery.
    """
    critical = [problem for problem in problems if problem.severity == "critical"]
    dying = [p for p in problems if p.subject == ENTROPY.short and p not in critical]
    lost = critical and len(critical) + len(dying) >= COLLAPSED_ROWS
    large = {problem.subject for problem in problems} >= set(STEPS)
    fell = fallen and (signs or signs_of(problems))
    goes_on = is_open and (fallen or critical or len(problems) >= COLLAPSED_ROWS)
    if fell or lost or (large and falling and not succeeds) or goes_on:
        return _collapse(problems, fallen, signs)
    return None


def signs_of(problems: list[Problem]) -> list[Problem]:
    """Rows that may show why returns fell: all but those about time."""
    return [problem for problem in problems if problem.subject != UPDATE_TIME.short]


def _names(problem: Problem) -> set[str | None]:
    return {problem.code} if problem.code == KL_SPIKE else {problem.subject}


def _holds(compound: Compound, parts: list[Problem]) -> bool:
    return all(any(_names(part) & group for part in parts) for group in compound.needs)


def _reported(compound: Compound, parts: list[Problem]) -> Problem:
    return of_policy(
        code=compound.code,
        severity=min((part.severity for part in parts), key=SEVERITIES.index),
        at=min(part.at for part in parts),
        message=f"{compound.words}: {_breach(parts)}",
        hint=compound.hint,
        factors=tuple(part.message for part in parts),
        symptoms=len(parts),
        absorbs=tuple(part.code for part in parts),
    )


def _collapse(rows: list[Problem], fallen: list[Problem], signs: tuple[str, ...]) -> Problem:
    parts = [*rows, *fallen]
    words = [_breach(rows)] if rows else list(signs)
    usual, stands = marks_of(fallen)
    return of_policy(
        code=COLLAPSE,
        severity="critical",
        at=min(problem.at for problem in parts),
        message="policy collapse: " + "; ".join([*words, *(["returns fall"] if fallen else [])]),
        hint="stop; go back to the last good checkpoint with a lower learning rate",
        factors=(*(problem.message for problem in parts), *signs),
        symptoms=len(parts),
        absorbs=(*(problem.code for problem in parts), *(compound.code for compound in COMPOUNDS)),
        usual=usual,
        stands=stands,
    )


def marks_of(fallen: list[Problem]) -> tuple[float | None, float | None]:
    """What was usual of returns that fell, and the level at which they are no longer down."""
    return next(((fall.usual, fall.stands) for fall in fallen), (None, None))


def _breach(parts: list[Problem]) -> str:
    labels = list(dict.fromkeys(filter(None, (_label(part.subject) for part in parts))))
    names = ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else "".join(labels)
    return f"{names} beyond {'its limit' if len(parts) == 1 else 'their limits'}"


def _label(short: str | None) -> str | None:
    return next(
        (row.label for row in BY_NAME.values() if row.short == short and row.scope is Scope.POLICY), None
    )


_STOPPED: Final = "early-stop"
_FELL: Final = "reward-collapse"
_COLLAPSED: Final = f"{COLLAPSE}:policy:"
_REMEMBERED: Final = (
    RETURN,
    EVAL_RETURN,
    LEARNING_RATE,
    *MOVING,
    *EXPLORES,
    *VARIED,
    *(known.row for known in CREEPING),
)
"""Rows of which levels are remembered."""


FLEET: Final = "fleet"
"""The name of what episodes of envs earn, where the trainer sends no return."""


class Calm(Derived):
    """That nothing was wrong with a policy, and by what; by `None` where something was."""

    def __init__(self, by: tuple[object, ...] | None = None) -> None:
        self.by = by


def _episodes(state: RunState, fleet: Fleet) -> int:
    """Without enough episodes to judge by, each one that ends may show whether returns vary."""
    return state.episodes if fleet.returns is None else -1


class PolicyMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a tick of what is judged of the policy."""

    heeded: int = -1
    """As the state counts it: while it is the same, so is all that the policy reported."""
    update_at: int = 0
    """When the newest update was that is in the levels."""
    levels: dict[str, Levels] = {}
    """What rows were like over the whole run, by full name."""
    away: Away = Away()
    """Ranks far from the others."""
    hacking: Hacking = Hacking()
    """How the proxy return and the true one part."""
    calm: Calm = msgspec.field(default_factory=Calm)


def judge_policy(
    state: RunState,
    fleet: Fleet,
    limits: AnomalyLimits,
    open_: Mapping[str, Problem],
    before: PolicyMemory,
) -> tuple[list[Problem], PolicyMemory]:
    """As `policy_problems`, which is not run again while nothing is wrong and nothing new came."""
    by = state.heeded, _episodes(state, fleet), fleet.usual, limits
    if before.calm.by == by:
        return [], before
    memory = before if before.heeded == state.heeded else _remembered(state, fleet, before)
    found = policy_problems(state, fleet, limits, open_, memory)
    is_calm = not found and not any(":policy:" in key for key in open_)
    return found, msgspec.structs.replace(memory, calm=Calm(by if is_calm else None))


def _remembered(state: RunState, fleet: Fleet, before: PolicyMemory) -> PolicyMemory:
    levels = dict(before.levels)
    if fleet.returns is not None and state.last_update_at > before.update_at:
        known = levels.get(FLEET)
        if known is None or known.changed_at != state.task_changed_at:
            known = Levels(changed_at=state.task_changed_at)
        levels[FLEET] = observe(known, fleet.returns.fleet.recent)
    for row in _REMEMBERED:
        if (series := state.policy.get(row.name)) is not None:
            size = FEW if row is EVAL_RETURN else BLOCK
            levels[row.name] = remember(levels.get(row.name), series, state.task_changed_at, size)
    return PolicyMemory(
        heeded=state.heeded,
        update_at=state.last_update_at,
        levels=levels,
        away=away(state, before.away),
        hacking=hacking(state, before.hacking),
    )


def policy_problems(
    state: RunState,
    fleet: Fleet,
    limits: AnomalyLimits,
    open_: Mapping[str, Problem],
    memory: PolicyMemory,
) -> list[Problem]:
    """What is wrong with the policy, symptoms under their causes."""
    levels, stands = memory.levels, stands_of(state, fleet, limits, memory.levels)
    beside = [*rank_problems(state, memory.away), *_evaluation(state, levels, open_)]
    beside += [one for one in (hacking_problem(state, memory.hacking), recompiles(state)) if one is not None]
    rows = list(row_problems(state, fleet, stands, open_))
    signs = _signs(state)
    fallen = list(_fallen(state, fleet, stands, open_))
    solved = stands.outlook is Outlook.GOOD and stands.gained > 0 and not returns_vary(state, fleet)
    hungry = list(starved(state, levels, stands, solved=solved))
    # What does not move since no step is made is a matter of the rate, or of gradients that never were.
    codes = {problem.code for problem in hungry}
    caused = RATE in codes or (ZERO in codes and not moved(state))
    still = None if caused else frozen(state, levels, stands, is_beyond=bool(rows))
    if still is not None:
        return [_taking(still, [*rows, *hungry], fallen), *beside]
    lost = critic(state, levels, stands, solved=solved)
    of_critic = set[str | None]() if lost is None else {row.short for row in CRITIC}
    rows = [row for row in rows if row.subject not in of_critic]
    apart = [*([] if lost is None else [lost]), *since_first(state, stands), *hungry, *beside]
    apart += [one for one in impossible(state) if one.id not in {row.id for row in rows}]
    entropy = state.policy.get(ENTROPY.name)
    falling = entropy is not None and trend(entropy) == "falls"
    is_open = _COLLAPSED in open_
    # What is open goes on while its rows are beyond their limits, whatever the return does for a moment.
    collapse = collapse_of(
        rows if is_open else [row for row in rows if row.severity != "info"],
        fallen,
        falling=falling,
        is_open=is_open,
        succeeds=stands.outlook is Outlook.GOOD,
        signs=signs,
    )
    if collapse is not None:
        return [collapse, *apart]
    subjects = {row.subject for row in rows}
    spiked = [spike for spike in spikes(state) if spike.subject not in subjects]
    reported = {problem.subject for problem in (*rows, *spiked, *fallen, *apart)} | of_critic
    quiet = list(_quiet(state, stands))
    reported |= set(STEPS) if any(problem.code == _STOPPED for problem in quiet) else set()
    crept = [
        drift
        for row, drift in drifts(state, levels, stands, open_)
        if row.short not in reported and is_judged(state, fleet, stands, row, state.policy[row.name])
    ]
    return [*joined([*rows, *spiked], open_), *fallen, *crept, *quiet, *apart]


def stands_of(state: RunState, fleet: Fleet, limits: AnomalyLimits, levels: Mapping[str, Levels]) -> Standing:
    """Return how the return stands: as the trainer sends it, else as its envs' episodes earn."""
    sent = of_return(levels)
    returns = fleet.returns
    if RETURN.name in state.policy or returns is None:
        return sent
    now, best = returns.fleet.recent, returns.fleet.earlier
    if fleet_fell(returns, limits) is not None:
        return Standing(Outlook.FALLEN, now, best, abs(best - now))
    stands = standing(levels.get(FLEET))
    # Envs may all have bad luck for a moment; a fall of the fleet is judged by its own scatter.
    return stands._replace(now=now, outlook=Outlook.FLAT) if stands.outlook is Outlook.FALLEN else stands


def _signs(state: RunState) -> tuple[str, ...]:
    """What entropy does that may show why returns fell, whatever its limits are."""
    entropy = state.policy.get(ENTROPY.name)
    if entropy is None or entropy.value is None:
        return ()
    way = trend(entropy)
    return () if way is None else (f"entropy {way} fast, to {entropy.value:.3g}",)


def _taking(cause: Problem, rows: list[Problem], fallen: list[Problem]) -> Problem:
    """A cause with its symptoms, whose findings it takes over."""
    parts = [*rows, *fallen]
    return msgspec.structs.replace(
        cause,
        factors=tuple(part.message for part in parts),
        symptoms=len(parts),
        absorbs=(*(part.code for part in parts), COLLAPSE, DIVERGED, *(c.code for c in COMPOUNDS)),
    )


def _quiet(state: RunState, stands: Standing) -> Iterator[Problem]:
    """What looks like trouble and is none: a policy that is solved, an early stop that worked."""
    if not is_warm(state):
        return
    entropy, stop = state.policy.get(ENTROPY.name), state.early_stop
    if entropy is not None and is_beyond(ENTROPY, entropy) and has_converged(state, stands):
        yield _converged(state, entropy)
    if stop is None or state.update is None or not 0 <= state.update - stop.update < LATELY:
        return
    if stop.kl_divergence <= STOPPED_WITHIN * stop.target:
        yield _stopped(state, stop, state.update)


def _converged(state: RunState, entropy: Series) -> Problem:
    reported = state.policy.get(RETURN.name)
    earned = "" if reported is None or reported.value is None else f" {reported.value:{RETURN.fmt}}"
    return of_policy(
        code="converged",
        severity="info",
        subject=ENTROPY.short,
        at=entropy.at,
        message=f"converged: entropy {entropy.value:.0%} of its maximum, return{earned} at its best",
        hint="the task may be solved: evaluate, then stop; more entropy only if it should explore on",
    )


def _stopped(state: RunState, stop: EarlyStopped, update: int) -> Problem:
    reported = {stop.update for stop in state.early_stops.items}
    lately = sum(0 <= update - number < LATELY for number in reported)
    return of_policy(
        code=_STOPPED,
        severity="info",
        subject=KL.short,
        at=stop.at,
        message=f"early stop worked: KL {stop.kl_divergence:.4f} at target {stop.target:g}",
        hint="nothing is wrong; where most updates stop early, a lower learning rate wastes fewer epochs",
        factors=(f"{lately} of the last {LATELY} updates",),
    )


def _fallen(
    state: RunState, fleet: Fleet, stands: Standing, open_: Mapping[str, Problem]
) -> Iterator[Problem]:
    """The return fell, of the whole fleet or as the trainer sends it: one finding, until half is regained."""
    num_envs = 0 if RETURN.name in state.policy or fleet.returns is None else fleet.returns.fleet.num
    known = next((found for found in map(open_.get, _DOWN) if found and found.usual is not None), None)
    if known is not None and known.at > state.task_changed_at and known.stands is not None:
        if stands.now < known.stands:
            yield _fall(state, RETURN, known.usual or 0.0, stands.now, num_envs=num_envs)
    elif stands.outlook is Outlook.FALLEN:
        yield _fall(state, RETURN, stands.best, stands.now, num_envs=num_envs)


_DOWN: Final = (f"{_FELL}:policy:{RETURN.short}", _COLLAPSED)
"""Findings that remember how much the return fell."""


def _evaluation(
    state: RunState, levels: Mapping[str, Levels], open_: Mapping[str, Problem]
) -> Iterator[Problem]:
    """Evaluations fell: what is learned is not what is wanted, or is learned away."""
    stands = standing(levels.get(EVAL_RETURN.name), FEW)
    known = open_.get(f"{_FELL}:policy:{EVAL_RETURN.short}")
    if known is not None and known.stands is not None:
        if stands.now < known.stands:
            yield _fall(state, EVAL_RETURN, known.usual or 0.0, stands.now)
    elif stands.outlook is Outlook.FALLEN:
        yield _fall(state, EVAL_RETURN, stands.best, stands.now)


def _fall(state: RunState, row: Metric, usual: float, now: float, *, num_envs: int = 0) -> Problem:
    of = "return of the fleet" if num_envs else row.label
    return Problem(
        code=_FELL,
        scope="policy",
        subject=row.short,
        at=state.last_at,
        message=f"{of} fell to {now:+.2f} from {usual:+.2f}",
        hint="look at KL and entropy; go back to the last good checkpoint",
        factors=(f"median of {num_envs} envs",) if num_envs else (),
        symptoms=num_envs,
        # A hold of updates is in the fall itself; envs may all end an episode badly by chance.
        patience=STEADY if num_envs else UPDATES,
        usual=usual,
        stands=(usual + now) / 2,
    )
