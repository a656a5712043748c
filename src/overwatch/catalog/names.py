"""Names derived from a row: the Prometheus name of a metric, by the rules of otlptranslator 1.0.0.

Pure string functions; must not know which rows exist.
"""

import re
from typing import Final

from overwatch.catalog.metric import Kind, Metric

_UNITS: Final = {
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "min": "minutes",
    "h": "hours", "d": "days", "By": "bytes", "KiBy": "kibibytes", "MiBy": "mebibytes", "GiBy": "gibibytes",
    "m": "meters", "V": "volts", "A": "amperes", "J": "joules", "W": "watts", "g": "grams",
    "Cel": "celsius", "Hz": "hertz", "%": "percent",
}  # fmt: skip
_PER: Final = {"s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day"}
_NOT_NAME: Final = re.compile(r"[^a-zA-Z0-9:]+")


def prometheus_name(metric: Metric) -> str:
    """Prometheus name of a row: dots to underscores, then the unit, then `_ratio` or `_total`.

    >>> from overwatch.catalog import KL
    >>> prometheus_name(KL)
    'overwatch_policy_kl_divergence'
    """
    words = [word for word in _NOT_NAME.split(metric.name) if word]
    for suffix in _unit_words(metric.unit):
        if suffix not in words:
            words.append(suffix)
    if metric.kind is Kind.COUNTER:
        words = [word for word in words if word != "total"] + ["total"]
    elif metric.unit == "1" and metric.kind is Kind.GAUGE:
        words = [word for word in words if word != "ratio"] + ["ratio"]
    name = "_".join(words)
    return f"_{name}" if name[:1].isdigit() else name


def label_name(attribute: str) -> str:
    """Prometheus label of an attribute key: `rl.run.id` becomes `rl_run_id`."""
    return _NOT_NAME.sub("_", attribute)


def _unit_words(unit: str) -> list[str]:
    """Suffix words of a UCUM unit; annotations in braces add nothing."""
    main, _, per = unit.partition("/")
    words = []
    if main and "{" not in main and main != "1":
        words.append(_UNITS.get(main, _NOT_NAME.sub("", main)))
    if per and "{" not in per:
        words += ["per", _PER.get(per, _UNITS.get(per, per))]
    return words
