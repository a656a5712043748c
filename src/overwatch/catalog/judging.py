"""Which limits judge a row in one run: its preset's, unless the run's own configuration says otherwise.

Pure; shared by the trainer's side, which counts breaches between two records, and the tower.
"""

import math
from collections.abc import Mapping
from typing import Final

from overwatch.catalog.metric import Limit, Limits, Metric, Side
from overwatch.catalog.policy import KL

STOPPED_WITHIN: Final = 2
"""An early stop worked where KL stayed within this many times its target: the critical limit of a target."""


def run_limits(row: Metric, preset: str, config: Mapping[str, str]) -> Limits:
    """Limits of a row under a preset; KL follows a target that the run declared."""
    target = declared(config, "target_kl")
    if row is not KL or target is None:
        return row.limits_for(preset)
    return Limits(
        warning=Limit(side=Side.ABOVE, value=target),
        critical=Limit(side=Side.ABOVE, value=STOPPED_WITHIN * target),
    )


def declared(config: Mapping[str, str], name: str) -> float | None:
    """A setting of a run's configuration, where it is a number above 0."""
    try:
        value = float(config.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
