"""Pasts of runs, for what draws them."""

import math
from collections.abc import Sequence

from overwatch.snapshot import Snapshot
from overwatch.snapshot.history import About, Curve, History, Line, Moment

SECONDS = 600
"""How long the run is."""
SPIKE = 240
"""Place of the one update whose KL is far off."""


def _curve(name: str, values: Sequence[float | None], begin: float, **fields: object) -> Curve:
    reported = {"label": name, "fmt": ".3f", "samples": len(values), "non_finite": 0, **fields}
    step = SECONDS / len(values)
    return Curve(
        name=name,
        at=tuple(begin + step * (place + 1) for place in range(len(values))),
        update=tuple(range(len(values))),
        low=tuple(values),
        high=tuple(values),
        **reported,  # type: ignore[arg-type]
    )


def of(snapshot: Snapshot, run_id: str | None = None, *, lift: float = 0.0) -> History:
    """The past of a run that learns, with one spike of KL, a gap in a custom number, and two ranks."""
    begin = snapshot.time - SECONDS
    limits = (
        Line(value=0.015, severity="warning", text=">.015"),
        Line(value=0.03, severity="critical", text=">.03"),
    )
    loss = [3 * math.exp(-place / 60) for place in range(480)]
    spiked = begin + SECONDS * SPIKE / 480
    returns = [lift + 200 * (1 - math.exp(-place / 120)) + 6 * math.sin(place / 7) for place in range(480)]
    kl = [0.008 + 0.003 * math.sin(place / 5) + (0.05 if place == SPIKE else 0.0) for place in range(480)]
    rank = [one + 0.004 for one in kl]
    fall = [0.9 - 0.5 * place / 480 for place in range(480)]
    gap = [None if 100 <= place < 180 else math.cos(place / 60) for place in range(480)]
    curves = (
        _curve("return", returns, begin, label="return", fmt="+.1f", text=f"{returns[-1]:+.1f}",
               direction="up", best=max(returns), best_update=returns.index(max(returns))),
        _curve("kl_divergence", kl, begin, label="KL", fmt=".4f", text=f"{kl[-1]:.4f}", status="ok",
               limits=limits, scale=(0.0, 0.03), direction="down"),
        _curve("entropy", fall, begin, label="entropy", fmt=".0%", suffix="max", text="40%max", status="ok",
               limits=(Line(value=0.3, severity="warning", text="<30%"),), scale=(0.0, 1.0)),
        _curve("value_loss", loss, begin, label="val loss", text="0.001"),
        _curve("mine", gap, begin, fmt=".4g", text="-0.1409", non_finite=80),
        _curve("kl_divergence#1", rank, begin, label="KL rank 1", fmt=".4f", text="0.0131", rank=1),
    )  # fmt: skip
    return History(
        run_id=run_id or snapshot.run.run_id,
        since=begin,
        until=snapshot.time,
        names=tuple(one.name for one in curves),
        curves=curves,
        moments=(Moment(code="kl-divergence", severity="warning", since=spiked, message="KL spiked"),),
        about=About(
            config={"lr": "3e-4", "target_kl": "0.015"},
            revision={"revision": "4be91c2", "changed": "yes"},
            environment={"task": "ant", "algorithm": "ppo", "nodes": "atlas"},
        ),
    )
