"""Gymnasium's action spaces, as telemetry needs them: how many actions there are, and their entropy."""

from typing import Any

import numpy as np
from gymnasium import spaces


def choices(space: spaces.Space[Any]) -> int:
    """How many actions there are, counted from 0; 0 where they are not so."""
    return int(space.n) if isinstance(space, spaces.Discrete) and space.start == 0 else 0


def most_entropy(space: spaces.Space[Any]) -> float | None:
    """Nats of a uniform choice among all actions; `None` where there is no such number or no choice."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return None
    return float(np.log(space.n if isinstance(space, spaces.Discrete) else space.nvec).sum()) or None
