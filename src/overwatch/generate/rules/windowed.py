"""Alerts whose windows follow from the length of a run."""

from typing import TypeAlias

from overwatch.catalog.alerts import Area
from overwatch.generate.rules.alert import Alert
from overwatch.generate.rules.series import (
    BY_RUN,
    IS_LIVE,
    USEFUL,
    burn_expr,
    burn_inputs,
    in_state,
    recorded,
    reported,
    useless_expr,
)
from overwatch.generate.rules.windows import Plan, span


def windowed_alerts(plan: Plan) -> tuple[Alert, ...]:
    """All of them."""
    pairs = plan.pairs()
    halves = (("Fast", pairs[:2]), ("Slow", pairs[2:]))
    return (
        *(_burn(word, half, plan) for word, half in halves),
        *(_useless(word, half, plan) for word, half in halves),
        _unsaved(plan),
        _quiet(plan),
    )


_Pairs: TypeAlias = tuple[tuple[float, int, int], ...]
"""Pace, long and short window."""


def _paces(pairs: _Pairs, budget: float) -> str:
    paces = " or ".join(
        f"{pace * budget:.0%} over {span(long)} and {span(short)}" for pace, long, short in pairs
    )
    return f"Fires at {paces}; {budget:.0%} over a run is what may be."


def _useless(word: str, pairs: _Pairs, plan: Plan) -> Alert:
    """Too large a share of a run's time without useful updates, at either of two paces."""
    return Alert(
        code="useful-time-burn",
        word=word,
        area=Area.RUN,
        expr="\nor\n".join(useless_expr(pace * plan.useless, long, short) for pace, long, short in pairs),
        hold_s=plan.hold(300),
        summary="A run spends too much of its time without useful updates.",
        more=_paces(pairs, plan.useless),
        bad=(recorded(USEFUL, "0"),),
        good=(recorded(USEFUL, "1"),),
    )


def _burn(word: str, pairs: _Pairs, plan: Plan) -> Alert:
    """Too large a share of the updates outside the trust region, at either of two paces."""
    return Alert(
        code="trust-region-burn",
        word=word,
        area=Area.POLICY,
        expr=burn_expr([(pace * plan.budget, long, short) for pace, long, short in pairs]),
        hold_s=plan.hold(60),
        summary="Too many updates of a run are outside its trust region.",
        more=_paces(pairs, plan.budget),
        bad=burn_inputs("1"),
        good=burn_inputs("0"),
        lead=1,
    )


def _unsaved(plan: Plan) -> Alert:
    saved, stale_s = "overwatch_run_last_checkpoint_timestamp_seconds", plan.at_least(plan.run_length_s / 24)
    return Alert(
        code="checkpoint-stale",
        area=Area.RUN,
        severity="critical",
        expr=f"time() - max {BY_RUN} ({saved}) > {stale_s}\nand on (rl_run_id) {IS_LIVE}",
        hold_s=plan.hold(300),
        summary="A run has saved no checkpoint for long.",
        more=f"For {span(stale_s)} or longer.",
        bad=(reported(saved, str(-10 * stale_s)), in_state("live")),
        # Saved all the time, on the clock of the tests.
        good=(reported(saved, "0+15x400"), in_state("live")),
    )


def _quiet(plan: Plan) -> Alert:
    updates, quiet_s = "overwatch_run_updates_total", plan.at_least(plan.run_length_s / 48)
    return Alert(
        code="updates-absent",
        area=Area.RUN,
        expr=(
            f"max {BY_RUN} ({updates}) > 0\n"
            f"and sum {BY_RUN} (increase({updates}[{span(plan.at_least(300))}])) == 0\n"
            f"and on (rl_run_id) {IS_LIVE}"
        ),
        hold_s=plan.hold(quiet_s),
        summary="A run speaks and makes no update.",
        more=f"For {span(quiet_s)} or longer.",
        bad=(reported(updates, "5"), in_state("live")),
        good=(reported(updates, "0+1x400"), in_state("live")),
        lead=1,
    )
