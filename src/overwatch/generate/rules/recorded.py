"""Recording rules: a few series a run and a fleet, which another Prometheus takes from `/federate`.

Owns their names, and what a useful moment of a run is: it reports, an update came within the shortest window,
and no critical finding is open. Rules: `instance` is aggregated away, as in alerts; whether a run is useful
is not recorded before its first update or after its end, so that an average over time is of the run's time.
"""

from dataclasses import dataclass
from typing import Final

from overwatch.catalog import prometheus_name
from overwatch.catalog.policy import RETURN
from overwatch.catalog.run import GPU_IDLE, STEPS
from overwatch.generate.rules.series import BY_RUN, STATUS, UPDATES_TOTAL, USEFUL
from overwatch.generate.rules.windows import Plan, span

_GONE: Final = "stale|silent|lost"
"""States in which a run brings nothing, though it has not ended."""
_SEVERITIES: Final = (("critical", 2), ("warning", 1))
_RATE_S: Final = 300
AVERAGE_S: Final = 3600
"""Seconds over which the recorded share of useful time is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One series that is recorded."""

    name: str
    """`overwatch:run_…` has the label `rl_run_id`; `overwatch:fleet_…` is of all runs together."""
    expr: str


def recordings(plan: Plan) -> tuple[Recording, ...]:
    """All of them, those first that others are made of."""
    rate = span(plan.at_least(_RATE_S))
    found = {
        USEFUL: _useful(plan),
        "overwatch:run_useful:avg": f"avg_over_time({USEFUL}[{span(plan.at_least(AVERAGE_S))}])",
        "overwatch:run_severity:max": " or ".join(
            f'(max {BY_RUN} (overwatch_findings{{severity="{word}"}}) > bool 0) * {rank} > 0'
            for word, rank in _SEVERITIES
        )
        + f" or 0 * max {BY_RUN} (overwatch_findings)",
        "overwatch:run_updates:rate": f"sum {BY_RUN} (rate({UPDATES_TOTAL}[{rate}]))",
        "overwatch:run_steps:rate": f"sum {BY_RUN} (rate({prometheus_name(STEPS)}[{rate}]))",
        "overwatch:run_update:max": f"max {BY_RUN} (overwatch_run_update)",
        "overwatch:run_return:max": f"max {BY_RUN} ({prometheus_name(RETURN)})",
        "overwatch:fleet_runs:sum": f"sum by (state) (max by (rl_run_id, state) ({STATUS}))",
        "overwatch:fleet_findings:sum": (
            "sum by (severity) (max by (rl_run_id, severity) (overwatch_findings))"
        ),
        "overwatch:fleet_useful:avg": f"avg({USEFUL})",
        "overwatch:fleet_steps:rate": "sum(overwatch:run_steps:rate)",
        "overwatch:fleet_gpus_idle:rate": f"sum(rate({prometheus_name(GPU_IDLE)}[{rate}]))",
    }
    return tuple(Recording(name=name, expr=expr) for name, expr in found.items())


def _useful(plan: Plan) -> str:
    """1 while a run is useful, 0 while it is not.

    Of a run that is lost the page has its state alone: what was recorded before shows that it had begun.
    """
    live, over = (
        f'max {BY_RUN} ({STATUS}{{state=~"{states}"}})' for states in ("live|slow|catching_up", _GONE)
    )
    updates = f"sum {BY_RUN} (increase({UPDATES_TOTAL}[{span(plan.at_least(0))}])) > bool 0"
    begun = span(plan.at_least(AVERAGE_S))
    calm = f'max {BY_RUN} (overwatch_findings{{severity="critical"}}) == bool 0'
    return (
        f"(\n  ({live} == 1)\n  * on (rl_run_id) ({updates})\n  * on (rl_run_id) ({calm})\n"
        f"  and on (rl_run_id) max {BY_RUN} ({UPDATES_TOTAL}) > 0\n)\nor on (rl_run_id)\n(\n"
        f"  0 * ({over} == 1)\n  and on (rl_run_id) last_over_time({USEFUL}[{begun}])\n)"
    )
