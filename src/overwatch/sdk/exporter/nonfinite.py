"""Values that must be finite and are not, found in measurements. Pure."""

import math
from typing import Final

from overwatch.catalog import BY_NAME, NonFinite
from overwatch.events import Column, Measured, NonFiniteSeen

MAX_OFFENDERS: Final = 16


def non_finite(event: Measured) -> list[NonFiniteSeen]:
    """One fact for each critical metric of the measurement that holds a NaN or an infinity."""
    found = []
    for name, column in event.values.items():
        row = BY_NAME.get(name)
        if row is None or row.non_finite is not NonFinite.CRITICAL or not column.dtype.endswith(("f4", "f8")):
            continue
        seen = _single(event, name, column) if len(column) == 1 else _many(event, name, column)
        if seen is not None:
            found.append(seen)
    return found


def _single(event: Measured, name: str, column: Column) -> NonFiniteSeen | None:
    value = column.first()
    if math.isfinite(value):
        return None
    env_id = event.keys.get("env_id")
    env_ids = () if env_id is None else (int(env_id.first()),)
    kind = "nan" if math.isnan(value) else "inf"
    return NonFiniteSeen(at=event.at, scope=event.scope, metric=name, kind=kind, env_ids=env_ids)


def _many(event: Measured, name: str, column: Column) -> NonFiniteSeen | None:
    import numpy as np

    values = column.array()
    finite = np.isfinite(values)
    if finite.all():
        return None
    bad = np.flatnonzero(~finite)
    env_id = event.keys.get("env_id")
    envs = [] if env_id is None else env_id.array()[bad].tolist()
    return NonFiniteSeen(
        at=event.at,
        scope=event.scope,
        metric=name,
        kind="nan" if bool(np.isnan(values[bad]).any()) else "inf",
        count=int(bad.size),
        env_ids=tuple(int(env) for env in dict.fromkeys(envs))[:MAX_OFFENDERS],
    )
