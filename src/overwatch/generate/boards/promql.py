"""PromQL as the dashboards need it: selectors of the chosen runs, and states as numbers with words.

Pure text. Rules: what belongs to a run is aggregated over `instance`, so a run resumed elsewhere stays one
line. Must not know panels.
"""

from collections.abc import Iterable, Mapping

from overwatch.generate.boards.uids import RUN_VARIABLE

PER_RUN = ("rl_run_id",)
RANGE = "$__rate_interval"


def of_run(name: str, **labels: str) -> str:
    """A selector of the chosen runs; a label's value may begin with an operator, else it is equal.

    >>> of_run("overwatch_findings", severity="critical")
    'overwatch_findings{rl_run_id=~"$rl_run_id",severity="critical"}'
    """
    return selector(name, rl_run_id=f"=~${RUN_VARIABLE}", **labels)


def of_collector(name: str, **labels: str) -> str:
    """A selector of the chosen collectors."""
    return selector(name, job="=~$job", instance="=~$instance", **labels)


def selector(name: str, **labels: str) -> str:
    """A name with labels.

    >>> selector("up", job="=~over.*", instance="a")
    'up{job=~"over.*",instance="a"}'
    """
    parts = (_matcher(label, word) for label, word in labels.items())
    return f"{name}{{{','.join(parts)}}}"


def _matcher(label: str, word: str) -> str:
    for sign in ("=~", "!~", "!="):
        if word.startswith(sign):
            return f'{label}{sign}"{word.removeprefix(sign)}"'
    return f'{label}="{word}"'


def worst(expr: str, by: Iterable[str] = PER_RUN) -> str:
    """The largest of each group."""
    return f"max by ({', '.join(by)}) ({expr})"


def total(expr: str, by: Iterable[str] = PER_RUN) -> str:
    """The sum of each group."""
    return f"sum by ({', '.join(by)}) ({expr})"


def rate(series: str) -> str:
    """How fast a counter grows, a second."""
    return f"rate({series}[{RANGE}])"


def increase(series: str, over: str = RANGE) -> str:
    """By how much a counter grew."""
    return f"increase({series}[{over}])"


def quantile(share: float, histogram: str, by: Iterable[str]) -> str:
    """What a share of the observations of each group is at most; `histogram` is a selector of its buckets."""
    return f"histogram_quantile({share:g}, {total(rate(histogram), by=('le', *by))})"


def coded(name: str, label: str, codes: Mapping[str, int], by: Iterable[str], **labels: str) -> str:
    """One number a group: the code of the state whose series is 1, of several the largest.

    States travel as one series each, 1 for the one that holds; a timeline wants one series a thing.
    """
    states = (f"{of_run(name, **labels, **{label: state})} * {code}" for state, code in codes.items())
    return worst(" or ".join(states), by)
