"""A signal of the policy beside its own past: it creeps away, dies, spikes, or is worse than before learning.

One table a question, whose rows are signals. `CREEPING`: the newest levels lie beyond every one of
the baseline, and far from its middle. `MOVING`, `VARIED`: the newest five are a trace of the
largest level, in any unit; a policy of which all that moves is dead is frozen. `SINCE_FIRST`: they are worse
than in the first updates, when nothing was learned. How the return stands decides the severity: a run at its
best may rest. The learning rate has findings of its own: what it explains is no other finding. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, KL, Direction, Metric, Scope
from overwatch.catalog.gradients import ACTION_STD, ENTROPY_NATS, TOTAL_LOSS
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.catalog.language import CHOSEN
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    LEARNING_RATE,
    POLICY_LOSS,
    RETURN,
    VALUE_LOSS,
)
from overwatch.catalog.presets import is_off_policy, is_supervised
from overwatch.catalog.runbooks import row_code
from overwatch.diagnose.levels import Levels, Outlook, Standing, rate_was_raised, span_of, standing
from overwatch.diagnose.policy_rows import is_clipped
from overwatch.diagnose.problem import Problem, of_policy
from overwatch.state.arrays import median
from overwatch.state.policy import Series, known_values, scatter
from overwatch.state.run import RunState

ADVANTAGE_STD: Final = BY_NAME["overwatch.policy.advantage_std"]
REWARD_STD: Final = BY_NAME["overwatch.policy.reward_std"]
NEEDED: Final = 5
"""Newest updates, all of which must agree."""


class Creeping(msgspec.Struct, frozen=True, kw_only=True):
    """A row that may creep away, and how far it must have moved to matter."""

    row: Metric
    share: float = 0.0
    """Of the middle of its baseline."""
    least: float = 0.0
    """In the row's unit."""
    of_limit: float = 0.0
    """Share of its warning limit that it must have reached; below, it is far from any trouble."""


CREEPING: Final = (
    Creeping(row=KL, share=0.5, of_limit=2 / 3),
    Creeping(row=CLIP_FRACTION, share=0.5, of_limit=2 / 3),
    Creeping(row=EXPLAINED_VARIANCE, least=0.25),
    # Their own limits are multiples of a median that creeps along.
    Creeping(row=GRAD_NORM, share=1.5),
    Creeping(row=VALUE_LOSS, share=1.5),
)
DRIFT: Final = "slow-drift"
BEYOND: Final = 3.0
"""Spreads of its baseline by which a row must be beyond all of it."""


def drifts(
    state: RunState, levels: Mapping[str, Levels], stands: Standing, open_: Mapping[str, Problem]
) -> Iterator[tuple[Metric, Problem]]:
    """Rows that crept away from their baselines; one that is open goes on until half is regained."""
    raised = rate_was_raised(state, levels)
    for watched in CREEPING:
        row, series = watched.row, state.policy.get(watched.row.name)
        known = open_.get(f"{DRIFT}:policy:{row.short}")
        if series is None or series.value is None or (raised and row in (KL, CLIP_FRACTION)):
            continue
        now = median(series.window.items[-10:]) or 0.0
        usual = known.usual if known is not None else _crept_from(state, watched, series, levels, now)
        if usual is None or (known is not None and _regained(row, now, known)):
            continue
        good = stands.outlook is Outlook.GOOD or (row is GRAD_NORM and is_clipped(state))
        yield row, _drift(row, series, now, usual, severity="info" if good else "warning")


def _crept_from(
    state: RunState, watched: Creeping, series: Series, levels: Mapping[str, Levels], now: float
) -> float | None:
    """The middle of the baseline, where the newest levels are all beyond it; else `None`."""
    known = levels.get(watched.row.name)
    span = span_of(known, series, 2)
    if known is None or span is None:
        return None
    limit = state.limits(watched.row).warning
    newest = known.items[-1], now
    if watched.row.direction is Direction.UP:
        far = min(span.low - BEYOND * span.spread, span.middle - watched.least)
        return span.middle if max(newest) < far else None
    far = max(span.high + BEYOND * span.spread, span.middle + watched.share * abs(span.middle), watched.least)
    if limit is not None and watched.of_limit:
        far = max(far, watched.of_limit * limit.value)
    return span.middle if min(newest) > far else None


def _regained(row: Metric, now: float, known: Problem) -> bool:
    half = known.stands if known.stands is not None else now
    return now > half if row.direction is Direction.UP else now < half


def _drift(row: Metric, series: Series, now: float, usual: float, *, severity: str) -> Problem:
    way = "sank" if row.direction is Direction.UP else "crept up"
    return of_policy(
        code=DRIFT,
        severity=severity,
        subject=row.short,
        at=series.at,
        message=f"{row.label} {way} slowly to {now:{row.fmt}} from {usual:{row.fmt}}",
        hint=row.fix or "compare with the checkpoint from before; look at what was changed since",
        usual=usual,
        stands=(usual + now) / 2,
    )


FROZEN: Final = "policy-frozen"
ZERO: Final = "zero-gradients"
RATE: Final = "learning-rate-zero"
MOVING: Final = (KL, CLIP_FRACTION)
"""How far an update moves the policy."""
EXPLORES: Final = (ENTROPY, ENTROPY_NATS)
"""What still changes where a trainer measures those before its step."""
VARIED: Final = (REWARD_STD, ADVANTAGE_STD)
"""What differs between samples, without which there is nothing to learn from."""
TRACE: Final = 0.02
"""Share of its largest level up to which a signal is dead."""
CHANCE: Final = 1e-8
"""That of a run of tiny values, by their share before."""
NO_SIZE: Final = 1e-12
"""What a sum of floats that cancel may leave of 0."""
CERTAIN: Final = 1e-3
"""Share of its maximum below which entropy moves no more."""
SAME: Final = 1e-9
WORSE: Final = -1.0
"""Explained variance of a critic that errs by twice what a constant would."""
LOSSES: Final = (VALUE_LOSS, POLICY_LOSS, GRAD_NORM)
"""What is never the same twice while samples differ."""
ALIKE: Final = 10
"""Updates in which all numbers of a policy are identical to the bit, from which no update is made."""
RATE_GONE: Final = 1e-4
"""Share of the highest learning rate below which no step is made."""
AT_BIRTH: Final = 20
"""Updates that may pass before a learning rate is above 0: a warm-up begins at 0."""


def newest_of(state: RunState, row: Metric, count: int = NEEDED) -> list[float]:
    """The newest values, where enough came and all are finite; else none."""
    series = state.policy.get(row.name)
    newest = [] if series is None else series.history.items[-count:]
    known = [value for value in newest if value is not None]
    return known if len(known) == count else []


def is_dead(state: RunState, levels: Mapping[str, Levels], row: Metric) -> bool:
    """Whether the newest values are a trace of what they were, for longer than by chance.

    Of what was never above 0 there is no trace. Small batches have tiny values now and then.
    """
    series, known = state.policy.get(row.name), levels.get(row.name)
    if series is None or known is None or not newest_of(state, row) or not known.high:
        return False
    low = [abs(value) <= TRACE * known.high for value in series.window.items]
    newest = next((back for back, is_low in enumerate(reversed(low)) if not is_low), len(low))
    before = low[: len(low) - newest]
    share = sum(before) / len(before) if before else 0.0
    return newest >= NEEDED and share**newest <= CHANCE


def moved(state: RunState) -> bool:
    """Whether any update ever moved the policy: what is 0 in all of them may not be measured."""
    rows = (state.policy.get(row.name) for row in MOVING)
    return any(series is not None and (series.highest or 0.0) > NO_SIZE for series in rows)


def frozen(
    state: RunState, levels: Mapping[str, Levels], stands: Standing, *, is_beyond: bool
) -> Problem | None:
    """A policy that no update moves: all that moves is dead, or was 0 from the first on and shows it.

    Numbers that stay the same are a sign only where no row `is_beyond` its limit, which names more.
    """
    same, good = None if is_beyond else _alike(state), stands.outlook is Outlook.GOOD and stands.gained > 0
    if good and same is None:
        return None
    rows = [row for row in MOVING if row.name in state.policy]
    dead = [row for row in rows if is_dead(state, levels, row)]
    zero = [row for row in rows if (newest := newest_of(state, row)) and max(map(abs, newest)) <= NO_SIZE]
    if same or (rows and dead == rows and moved(state) and not _explores(state, levels)):
        words = same or " and ".join(row.label for row in rows) + " are a trace of what they were"
    elif rows and zero == rows and (signs := _signs_of_death(state)):
        words = (
            " and ".join(row.label for row in rows) + f" exactly 0 in {NEEDED} updates; {'; '.join(signs)}"
        )
    else:
        return None
    return of_policy(
        code=FROZEN,
        severity="warning" if good else "critical",
        at=state.last_update_at,
        message=f"policy does not move: {words}",
        hint="stop: it learns nothing any more; lower the learning rate and start again from before",
    )


def _explores(state: RunState, levels: Mapping[str, Levels]) -> bool:
    """Whether entropy still changes, and is no trace of what it was."""
    return any(
        max(newest) - min(newest) > SAME and not is_dead(state, levels, row)
        for row in EXPLORES
        if (newest := newest_of(state, row))
    )


def _alike(state: RunState) -> str | None:
    """What shows that all numbers that ever varied, but the return, are the same for many updates."""
    rows = (KL, CLIP_FRACTION, ENTROPY, ENTROPY_NATS, *LOSSES)
    newest = {
        row.label: values
        for row in rows
        if any(values := newest_of(state, row, ALIKE))
        and (series := state.policy[row.name]).highest != series.lowest
    }
    if not newest.keys() & {row.label for row in LOSSES} or any(
        min(values) != max(values) for values in newest.values()
    ):
        return None
    return f"{', '.join(newest)} are identical to the bit in {ALIKE} updates"


def _signs_of_death(state: RunState) -> list[str]:
    """What shows that zeros from the first update on are no missing measurement."""
    signs = []
    explained, lost = newest_of(state, EXPLAINED_VARIANCE), lost_critic(state)
    if lost is not None:
        signs.append(lost)
    elif explained and max(explained) < WORSE:
        signs.append(f"explained variance {explained[-1]:{EXPLAINED_VARIANCE.fmt}}")
    # A differential entropy stays where the spread of actions is fixed.
    entropy = newest_of(state, ENTROPY) if state.limits(ENTROPY).warning is not None else []
    still = bool(entropy) and (max(map(abs, entropy)) <= CERTAIN or max(entropy) - min(entropy) <= SAME)
    if entropy and not still:
        return []
    if still and (signs or not explained or max(explained) < 0.5):
        signs.append(f"entropy stays at {entropy[-1] + 0.0:.3g}")
    return signs


def starved(
    state: RunState, levels: Mapping[str, Levels], stands: Standing, *, solved: bool
) -> Iterator[Problem]:
    """Gradients and what they are made of that died, and a learning rate that reached 0."""
    if (rate := _rate_zero(state)) is not None:
        yield rate
    rests = stands.outlook is Outlook.GOOD and stands.gained > 0
    gradients = newest_of(state, GRAD_NORM)
    none = bool(gradients) and not any(gradients)
    series = state.policy.get(GRAD_NORM.name)
    measured = series is not None and (bool(series.highest) or not (rests or moved(state)))
    if series is not None and measured and (none or (not rests and is_dead(state, levels, GRAD_NORM))):
        high = levels[GRAD_NORM.name].high if GRAD_NORM.name in levels else 0.0
        yield of_policy(
            code=ZERO,
            severity="critical" if none and not solved else "warning",
            subject=GRAD_NORM.short,
            at=series.at,
            message=f"gradients exactly 0 in {NEEDED} updates" if none
            else f"gradients vanished: {gradients[-1]:.1e} in {NEEDED} updates, {high:.1e} before",
            hint="look for a detached loss, frozen parameters, saturated units, equal advantages",
        )  # fmt: skip
    earned = newest_of(state, RETURN)
    for row in VARIED:
        if is_dead(state, levels, row):
            yield of_policy(
                code=row_code(row),
                # Where all that is earned is the same to the bit there is nothing left to distinguish.
                severity="info" if solved and earned and min(earned) == max(earned) else "warning",
                subject=row.short,
                at=state.policy[row.name].at,
                message=f"{row.label} {newest_of(state, row)[-1]:.2g}, {levels[row.name].high:.2g} before: "
                "samples do not differ, so there is nothing to learn from them",
                hint=row.fix or "look at rewards: all samples earn the same",
            )


def _rate_zero(state: RunState) -> Problem | None:
    """A learning rate of 0 while updates go on: a schedule that ended too early, or never began."""
    series, newest = state.policy.get(LEARNING_RATE.name), newest_of(state, LEARNING_RATE)
    planned = None if state.started is None else state.started.updates
    if series is None or series.highest is None or not newest:
        return None
    if planned is not None and state.update is not None and state.update >= planned - NEEDED:
        return None
    if series.highest <= 0 and (moved(state) or series.updates < AT_BIRTH):
        return None
    if max(map(abs, newest)) > RATE_GONE * series.highest:
        return None
    was = "never above it" if series.highest <= 0 else f"{series.highest:.1e} at its highest"
    return of_policy(
        code=RATE,
        subject=LEARNING_RATE.short,
        at=series.at,
        message=f"learning rate {newest[-1]:.1g} in {NEEDED} updates, {was}, and the run goes on",
        hint="the schedule ends before the run does: give it the run's number of updates, or end the run",
    )


DIVERGED: Final = "critic-diverged"
FAILING: Final = "critic-failing"
NOTHING: Final = 0.1
"""Explained variance up to which a critic knows nothing."""
LOST: Final = 1e4
"""Times the square of the largest return that a lost critic's loss is: it errs by a hundred returns."""
HUGE: Final = 1e8
"""Loss that no scale of rewards in use explains, where nothing else gives the scale."""
UNTRAINED: Final = 5.0
"""Times the first error of a critic, from which it is worse than none; healthy ones stay below 0.7."""
TIMES_LOSS: Final = 4.0
"""Times its usual loss that it must err besides."""


def critic(
    state: RunState, levels: Mapping[str, Levels], stands: Standing, *, solved: bool
) -> Problem | None:
    """A critic whose error is beyond all that was earned, or one that was good and no longer is."""
    lost, code, severity = lost_critic(state), DIVERGED, "critical"
    if stands.outlook is Outlook.GOOD:
        severity = "warning"
    if lost is None and not solved:
        lost, code, severity = _forgot(state, levels), FAILING, "warning"
    if lost is None:
        return None
    return of_policy(
        code=code,
        severity=severity,
        at=state.policy[VALUE_LOSS.name].at,
        message=f"the critic {'has diverged' if code == DIVERGED else 'fails'}: {lost}",
        hint="stop; lower the learning rate, normalise rewards, clip gradients, and start again"
        if code == DIVERGED
        else "check the scale of rewards; more epochs or a larger share of the loss for the critic",
    )


def _forgot(state: RunState, levels: Mapping[str, Levels]) -> str | None:
    """What shows that a critic which explained much explains little, and errs by far more."""
    losses, stands = newest_of(state, VALUE_LOSS), standing(levels.get(EXPLAINED_VARIANCE.name))
    usual = None if not losses else span_of(levels.get(VALUE_LOSS.name), state.policy[VALUE_LOSS.name], 1)
    if usual is None or stands.outlook is not Outlook.FALLEN or min(losses) < TIMES_LOSS * usual.middle:
        return None
    return (
        f"explained variance {stands.now:.2f} from {stands.best:.2f}, "
        f"value loss {losses[-1]:.2g} from {usual.middle:.2g}"
    )


def lost_critic(state: RunState) -> str | None:
    """What shows that the critic is lost; `None` where nothing does."""
    losses, explained = newest_of(state, VALUE_LOSS), newest_of(state, EXPLAINED_VARIANCE)
    loss = median(losses)
    if loss is None or (explained and max(explained) > NOTHING):
        return None
    worse = _worse_than_untrained(state)
    if worse is not None:
        return worse
    sent = state.policy.get(RETURN.name)
    ends = () if sent is None or sent.highest is None or sent.lowest is None else (sent.highest, sent.lowest)
    earned = max((abs(end) for end in ends), default=None)
    # Telemetry may hold any number: a square beyond the largest is infinite, and nothing is above it.
    scale = HUGE if earned is None or not explained else 1.0
    least = max(scale, LOST * max(1.0, earned * earned if earned is not None else 1.0))
    if loss <= least:
        return None
    beside = "" if earned is None else f", the largest return {earned:g}"
    return f"value loss {loss:.1e}{beside}"


def _worse_than_untrained(state: RunState) -> str | None:
    """What shows that a critic errs by more than before it learned; `None` where nothing does.

    Its error grows with the square of what is earned. One update is luck: the median of those remembered.
    What learns from old experience errs little at first, because its critic predicts nothing yet.
    """
    loss, earned = state.policy.get(VALUE_LOSS.name), state.policy.get(RETURN.name)
    if loss is None or earned is None or not loss.first or not earned.first or is_off_policy(state.algo):
        return None
    now = median(known_values(loss))
    # A return in one of three updates is enough to know what returns grew by.
    if now is None or loss.first < 0 or earned.updates * 3 < loss.updates:
        return None
    grown = max(abs(end or 0.0) for end in (earned.highest, earned.lowest)) / abs(earned.first)
    untrained = loss.first * grown * grown
    if now <= UNTRAINED * untrained:
        return None
    return f"value loss {now:.2g}, {untrained:.2g} of one that has learned nothing"


class SinceFirst(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that must not become worse than in the first update."""

    row: Metric
    code: str
    times: float = 1.0
    more: float = 0.0
    """In the row's unit, beside `times`."""
    words: str
    hint: str


SINCE_FIRST: Final = (
    SinceFirst(
        row=TOTAL_LOSS, code="loss-diverged", times=2.0, words="the loss has diverged",
        hint="stop: lower the learning rate, warm it up, clip gradients, and start again",
    ),
    SinceFirst(
        row=CHOSEN, code="likelihood-displacement", times=3.0, words="preferred answers became unlikely",
        hint="lower the learning rate, raise beta, or add the loss of the preferred answers",
    ),
    SinceFirst(
        row=ACTION_STD, code="entropy-explosion", times=2.0, words="actions spread, and returns did not rise",
        hint="lower the learning rate or the entropy coefficient; bound the standard deviation of actions",
    ),
    SinceFirst(
        row=ENTROPY_NATS, code="entropy-explosion", more=1.0, words="entropy rose, and returns did not",
        hint="lower the learning rate or the entropy coefficient; bound the standard deviation of actions",
    ),
)  # fmt: skip


def since_first(state: RunState, stands: Standing) -> Iterator[Problem]:
    """Signals that are worse than before anything was learned, where nothing was gained by it."""
    if stands.outlook is Outlook.GOOD:
        return
    for watched in SINCE_FIRST:
        row, newest = watched.row, newest_of(state, watched.row)
        first = None if not newest else state.policy[row.name].first
        if first is None or not _is_comparable(state, row, first):
            continue
        far = watched.times * first + watched.more
        if not (max(newest) < far if first < 0 and not watched.more else min(newest) > far):
            continue
        yield of_policy(
            code=watched.code,
            severity="critical" if row is TOTAL_LOSS and is_supervised(state.algo) else "warning",
            subject=row.short,
            at=state.policy[row.name].at,
            message=f"{watched.words}: {row.label} {newest[-1]:.3g}, {first:.3g} in the first update",
            hint=watched.hint,
        )
        return


def _is_comparable(state: RunState, row: Metric, first: float) -> bool:
    """Whether the first update is a measure of later ones."""
    if row is TOTAL_LOSS:
        others = any(known.name in state.policy for known in (RETURN, VALUE_LOSS, POLICY_LOSS, KL))
        return first > 0 and not others and not is_off_policy(state.algo)
    if row is CHOSEN:
        return first < 0
    # Where the spread of actions is sent, entropy follows from it.
    return ACTION_STD.name not in state.policy if row is ENTROPY_NATS else first > 0


class Spiky(msgspec.Struct, frozen=True, kw_only=True):
    """A row of which a single update may stand out."""

    row: Metric
    code: str
    times: float
    """Of its median, from which an update stands out."""
    hint: str


SPIKY: Final = (
    Spiky(
        row=KL, code="kl-spike", times=5.0,
        hint="one update moved the policy far: look at its batch; set target_kl to stop such updates",
    ),
    Spiky(
        row=GRAD_NORM, code="gradient-spikes", times=3.0,
        hint="look at the batches of those updates for outliers in rewards and observations; clip gradients",
    ),
)  # fmt: skip
SCATTERS: Final = 8.0
"""Robust standard deviations above the median that it must be as well."""
EXTREME: Final = 20.0
"""Times its limit from which one update may have undone many."""
SPIKES_NEED: Final = 20
"""Updates that make the median."""
SEVERAL: Final = 3
LATELY: Final = 5
"""Updates for which what passed is shown: a spike, a stop, a recompile."""


def spikes(state: RunState) -> Iterator[Problem]:
    """Values far beyond their median that came and went; of a level that rises only the first counts.

    A spike is no trend, so it is info; one far beyond its limit warns, as several do that were not clipped.
    """
    for watched in SPIKY:
        row, series = watched.row, state.policy.get(watched.row.name)
        values = [] if series is None else series.window.items
        usual = median(values) if len(values) >= SPIKES_NEED else None
        if series is None or usual is None or usual <= 0:
            continue
        limit = state.limits(row).warning
        most = 0.0 if limit is None else limit.threshold(0.0) or 0.0
        least = max(watched.times * usual, usual + SCATTERS * max(scatter(values), 0.05 * usual), most)
        high = [value > least for value in values]
        places = [place for place, is_high in enumerate(high) if is_high and not (place and high[place - 1])]
        largest = max(values[-LATELY:])
        if not places or len(values) - places[-1] > LATELY or (row is KL and _was_stopped(state, largest)):
            continue
        several = len(places) >= SEVERAL
        unclipped = row is GRAD_NORM and several and state.declared("max_grad_norm") is None
        yield of_policy(
            code=watched.code,
            severity="warning" if unclipped or (row is KL and 0 < EXTREME * most < largest) else "info",
            subject=row.short,
            at=series.at,
            message=f"{row.label} spiked to {largest:{row.fmt}}, {largest / usual:.0f} times its usual"
            + (f", the last of {len(places)} within {len(values)} updates" if several else ""),
            hint=watched.hint,
        )


def _was_stopped(state: RunState, largest: float) -> bool:
    """Whether a stop lately kept KL near its target."""
    return any(
        (state.update or 0) - stop.update < LATELY
        and max(stop.kl_divergence, largest) <= STOPPED_WITHIN * stop.target
        for stop in state.early_stops.items
    )


RANGES: Final = {
    KL.name: (-0.01, float("inf")),
    CLIP_FRACTION.name: (0.0, 1.0),
    EXPLAINED_VARIANCE.name: (-float("inf"), 1.0),
}
"""What a row can be at all; estimates of KL may be a little below 0."""
SLACK: Final = 1e-6


def impossible(state: RunState) -> Iterator[Problem]:
    """Values that the row cannot have: another quantity is sent under its name, or it is computed wrongly."""
    for name, (least, most) in RANGES.items():
        row = BY_NAME[name]
        newest = newest_of(state, row)
        if (
            newest
            and row.scope is Scope.POLICY
            and not any(least <= value <= most + SLACK for value in newest)
        ):
            yield of_policy(
                code=row_code(row),
                subject=row.short,
                at=state.policy[name].at,
                message=f"{row.label} {newest[-1]:.3g} cannot be",
                hint=f"it lies within {least:g} and {most:g}: look at its sign and its unit",
            )
