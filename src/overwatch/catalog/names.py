"""Names derived from a row: the Prometheus name of a metric, by the rules of otlptranslator 1.0.0.

Pure string functions; must not know which rows exist.
"""

import re
from typing import Final

from overwatch.catalog.metric import Kind, Metric

_UNITS: Final = {
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "min": "minutes",
    "h": "hours", "d": "days", "By": "bytes", "KiBy": "kibibytes", "MiBy": "mebibytes", "GiBy": "gibibytes",
    "TiBy": "tibibytes", "KBy": "kilobytes", "MBy": "megabytes", "GBy": "gigabytes", "TBy": "terabytes",
    "m": "meters", "V": "volts", "A": "amperes", "J": "joules", "W": "watts", "g": "grams",
    "Cel": "celsius", "Hz": "hertz", "1": "", "%": "percent",
}  # fmt: skip
_PER: Final = {
    "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year",
}  # fmt: skip
_NOT_NAME: Final = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


def prometheus_name(metric: Metric) -> str:
    """Prometheus name of a row: dots to underscores, then the unit, then `_ratio` or `_total`.

    >>> from overwatch.catalog import KL
    >>> prometheus_name(KL)
    'overwatch_policy_kl_divergence'
    """
    words = _words(metric.name)
    words += [suffix for suffix in _unit_suffixes(metric.unit) if suffix and suffix not in words]
    if metric.kind is Kind.COUNTER:
        words = [word for word in words if word != "total"] + ["total"]
    elif metric.unit == "1" and metric.kind is Kind.GAUGE:
        words = [word for word in words if word != "ratio"] + ["ratio"]
    return _joined(words)


def plain_name(name: str) -> str:
    """Prometheus name of a number that has no row, and so no unit.

    >>> plain_name("0 my.own %")
    '_0_my_own'
    """
    return _joined(_words(name))


def _words(name: str) -> list[str]:
    return [word for word in _NOT_NAME.split(name) if word]


def _joined(words: list[str]) -> str:
    name = "_".join(words)
    return f"_{name}" if name[:1].isdigit() else name


def label_name(attribute: str) -> str:
    """Prometheus label of an attribute key: `rl.run.id` becomes `rl_run_id`.

    >>> label_name("2xx"), label_name("_hidden"), label_name("__kept__")
    ('key_2xx', 'key_hidden', '__kept__')
    """
    name = _NOT_LABEL.sub("_", attribute)
    if name[:1].isdigit():
        return f"key_{name}"
    return f"key{name}" if name.startswith("_") and not name.startswith("__") else name


def _unit_suffixes(unit: str) -> tuple[str, str]:
    """What a UCUM unit adds: its own word, and `per_` with another; annotations in braces add nothing."""
    main, _, per = (part.strip() for part in unit.partition("/"))
    first = "" if "{" in main else _UNITS.get(main, main)
    second = "" if "{" in per or not per else f"per_{_PER.get(per, per)}"
    return _NOT_NAME.sub("_", first).strip("_"), _NOT_NAME.sub("_", second).strip("_")
