"""Which limits judge a row in one run: its preset's, unless the run's own configuration says otherwise.

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


def run_limits(row: Metric, preset: str, config: Mapping[str, str]) -> Limits:
    """Limits of a row under a preset.

    Limits of KL follow the `target_kl` that the run declared, that of KL from the reference its
    `target_kl_reference`: a choice costs the same in a short answer, and there it is much a token. A gradient
    norm below the run's `max_grad_norm` is not large, so its relative limits are at least that. Half a
    `precision` collects and learns with other roundings, which is no mismatch.
    """
    if row is FIRST_RATIO_ERROR and config.get("precision") in HALF_PRECISIONS:
        return above(HALF_MISMATCH)
    allowed = declared(config, "target_kl_reference") if row is KL_REFERENCE else None
    if allowed is not None:
        return above(allowed)
    target, clips_at = declared(config, "target_kl"), declared(config, "max_grad_norm")
    if row is GRAD_NORM and clips_at is not None:
        return _beginning_at(row.limits_for(preset), clips_at)
    if row is not KL or target is None:
        return row.limits_for(preset)
    return Limits(
        warning=Limit(side=Side.ABOVE, value=target),
        critical=Limit(side=Side.ABOVE, value=STOPPED_WITHIN * target),
    )


def _beginning_at(limits: Limits, value: float) -> Limits:
    if limits.warning is None or not limits.warning.relative:
        return limits
    least = value / limits.warning.value
    critical = None if limits.critical is None else replace(limits.critical, least=least)
    return replace(limits, warning=replace(limits.warning, least=least), critical=critical)


def declared(config: Mapping[str, str], name: str) -> float | None:
    """A setting of a run's configuration, where it is a number above 0."""
    try:
        value = float(config.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
