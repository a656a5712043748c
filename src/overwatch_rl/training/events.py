"""What the numbers of an update show to have happened, of any algorithm."""

import math
from collections.abc import Iterator
from typing import Any

from overwatch.catalog import Scope
from overwatch.catalog.env import REWARD
from overwatch.catalog.policy import GRAD_NORM
from overwatch.events import EarlyStopped, Event, LogLine, NonFiniteSeen, Severity


def events_of(config: Any, update: int, values: dict[str, float], at_ns: int) -> Iterator[Event]:
    """An early stop, and rewards and gradients that were not finite; takes the numbers out of `values`.

    `config` is that of the algorithm.
    """
    if rewards := round(values.pop("rewards_not_finite", 0.0)):
        yield NonFiniteSeen(at=at_ns, scope=Scope.ENV, metric=REWARD.name, kind="nan", count=rewards)
        words = f"{rewards} rewards of update {update} are no finite numbers; the return of their episodes is"
        message = f"{words} not known, and nothing is learned from them: mend the world's rewards"
        yield LogLine(at=at_ns, severity=Severity.WARNING, message=message, subsystem="worlds")
    not_finite = round(values.pop("minibatches_not_finite", 0.0))
    skipped = round(values.get("minibatches_skipped", 0.0)) - not_finite
    target = getattr(config, "target_kl", None)
    if skipped and target is not None:
        yield EarlyStopped(
            at=at_ns,
            update=update,
            epoch=config.epochs - skipped // config.minibatches,
            kl_divergence=values["kl_joint"],
            target=target,
            minibatches_skipped=skipped,
        )
    if not_finite:
        kind = "nan" if math.isnan(values["grad_norm"]) else "inf"
        yield NonFiniteSeen(at=at_ns, scope=Scope.POLICY, metric=GRAD_NORM.name, kind=kind, count=not_finite)
