"""Which limits judge a row in one run: its preset's, unless the run's own configuration states otherwise.

Pure; shared by the trainer's side, which counts breaches between two records, and the tower.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from overwatch.catalog.metric import Limit, Limits, Metric, Side, above
from overwatch.catalog.moves import FIRST_RATIO_ERROR, KL_REFERENCE
from overwatch.catalog.policy import GRAD_NORM, KL

HALF_PRECISIONS: Final = frozenset({"bf16", "bfloat16", "fp16", "float16"})
HALF_MISMATCH: Final = 1e-2
"""Ratios of a policy that collected in half precision differ from 1 by up to half of this."""
STOPPED_WITHIN: Final = 2
"""An early stop worked where KL stayed within this many times its target: the critical limit of a target."""
_SETTING_OF: Final = {
    KL.name: "target_kl",
    KL_REFERENCE.name: "target_kl_reference",
    GRAD_NORM.name: "max_grad_norm",
}
"""What a run declares of a row."""


def run_limits(row: Metric, preset: str, config: Mapping[str, str]) -> Limits:
    """Limits of a row under a preset.

    Limits of KL follow the `target_kl` that the run declared, that of KL from the reference its
    `target_kl_reference`: a choice costs the same in a short answer, and there it is much a token. A gradient
    norm below the run's `max_grad_norm` is not large, so its relative limits are at least that. Half a
    `precision` collects and learns with other roundings, which is no mismatch.
    """
    if row is FIRST_RATIO_ERROR and config.get("precision") in HALF_PRECISIONS:
        return above(HALF_MISMATCH)
    setting = _SETTING_OF.get(row.name)
    number = None if setting is None else declared(config, setting)
    if number is None:
        return row.limits_for(preset)
    if row is KL_REFERENCE:
        return above(number)
    if row is GRAD_NORM:
        return _beginning_at(row.limits_for(preset), number)
    return Limits(
        warning=Limit(side=Side.ABOVE, value=number),
        critical=Limit(side=Side.ABOVE, value=STOPPED_WITHIN * number),
    )


def _beginning_at(limits: Limits, value: float) -> Limits:
    if limits.warning is None or not limits.warning.relative:
        return limits
    least = value / limits.warning.value
    critical = None if limits.critical is None else replace(limits.critical, least=least)
    return replace(limits, warning=replace(limits.warning, least=least), critical=critical)


def declared(config: Mapping[str, str], name: str) -> float | None:
    """A setting of a run's configuration, where it is a number above 0."""
    if name not in config:
        return None
    try:
        value = float(config[name])
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
