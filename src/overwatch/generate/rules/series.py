"""Expressions and series that several alerts share.

Owns names of series and how a share of updates is asked for; `Input` is a series as promtool writes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from overwatch.generate.rules.windows import UPDATES, span

BY_RUN: Final = "by (rl_run_id)"
STATUS: Final = "overwatch_run_status"
USEFUL: Final = "overwatch:run_useful:now"
"""Recorded: 1 while a run is useful, 0 while it is not; see `recorded`."""
IS_LIVE: Final = f'max {BY_RUN} ({STATUS}{{state=~"live|slow|catching_up"}}) == 1'
_BEYOND: Final = 'overwatch_policy_updates_beyond_limit_total{metric="kl_divergence",level="critical"}'
_WARNED: Final = 'overwatch_findings{severity!="info"}'
UPDATES_TOTAL: Final = "overwatch_run_updates_total"
_LABELS: Final = 'job="t",instance="a",rl_run_id="RUN"'


@dataclass(frozen=True, slots=True, kw_only=False)
class Input:
    """One series of a test."""

    series: str
    """`RUN` stands for the id of the run."""
    values: str
    """In promtool's notation; one number means that it stays."""

    def of(self, run: str) -> "Input":
        """The same of a named run."""
        return Input(self.series.replace("RUN", run), self.values)


def finding(code: str, value: str) -> Input:
    """How many findings of a code are open."""
    return Input(f'overwatch_run_findings{{{_LABELS},code="{code}"}}', value)


def in_state(state: str, value: str = "1") -> Input:
    """Whether a run is in a state."""
    return Input(f'overwatch_run_status{{{_LABELS},state="{state}"}}', value)


def reported(name: str, values: str) -> Input:
    """A series of a run without further labels."""
    return Input(f"{name}{{{_LABELS}}}", values)


def of_job(name: str, values: str, job: str, **labels: str) -> Input:
    """A collector's own series."""
    more = "".join(f',{key}="{word}"' for key, word in labels.items())
    return Input(f'{name}{{job="{job}",instance="a"{more}}}', values)


def own(prefix: str, values: str, job: str) -> tuple[Input, ...]:
    """A collector's own counters of all signals."""
    return tuple(
        of_job(f"{prefix}_{items}_total", values, job, receiver="otlp")
        for items in ("log_records", "metric_points", "spans")
    )


def risen(items: Iterable[str], prefix: str, seconds: int) -> str:
    """By how much counters of all signals rose, a job."""
    return " + ".join(f"sum by (job) (increase({prefix}_{one}_total[{span(seconds)}]))" for one in items)


def burn_expr(pairs: Iterable[tuple[float, int, int]]) -> str:
    """Whether more than a share of updates was outside, over both windows, and a finding warns."""
    windows = []
    for share, *both in pairs:
        parts = [
            f"{_rise(_BEYOND, window)} / {_rise(UPDATES_TOTAL, window)} > {share:.4g}" for window in both
        ]
        parts.append(f"{_rise(UPDATES_TOTAL, both[0])} >= {UPDATES}")
        windows.append("(\n  " + "\n  and ".join(parts) + "\n)")
    return "(\n" + "\nor\n".join(windows) + f"\n)\nand on (rl_run_id) max {BY_RUN} ({_WARNED}) > 0"


def useless_expr(share: float, long_s: int, short_s: int) -> str:
    """Whether more than a share of the time was not useful, over a long window and still over a short one."""
    parts = [f"1 - avg_over_time({USEFUL}[{span(window)}]) > {share:.4g}" for window in (long_s, short_s)]
    return "(\n  " + "\n  and ".join(parts) + "\n)"


def recorded(name: str, values: str) -> Input:
    """What was recorded of a run."""
    return Input(f'{name}{{rl_run_id="RUN"}}', values)


def _rise(series: str, seconds: int) -> str:
    return f"sum {BY_RUN} (increase({series}[{span(seconds)}]))"


def burn_inputs(warned: str) -> tuple[Input, ...]:
    """Updates that are all beyond the limit, and whether a finding warns of it."""
    beyond, always = _BEYOND.replace("{", f"{{{_LABELS},"), "0+40x400"
    return Input(beyond, always), reported(UPDATES_TOTAL, always), reported("overwatch_findings", warned)
