"""Early stops: which breaches of KL are none, because the trainer itself answered them in time.

A stop that kept its update's KL within twice its target worked. Stops and the numbers of their updates come
in either order, and one record may tell of many updates: both sides are settled whenever one of them comes.
Must not know what a finding is.
"""

from overwatch.catalog import KL
from overwatch.catalog.judging import STOPPED_WITHIN
from overwatch.events import EarlyStopped
from overwatch.state.judge import Status, judge
from overwatch.state.policy import Series, excuse, forgive
from overwatch.state.run import RunState


def settle_stops(state: RunState) -> None:
    """Take back the breaches in the newest record of KL that stops have answered."""
    kl, stop = state.policy.get(KL.name), state.early_stop
    if kl is None or stop is None:
        return
    if stop.update == state.update and kl.value is not None and _worked(stop, kl.value):
        forgive(kl)
    _settle_rest(state, kl)


def _worked(stop: EarlyStopped, value: float) -> bool:
    return value <= STOPPED_WITHIN * stop.target


def _settle_rest(state: RunState, kl: Series) -> None:
    """Of the updates before a record's last one only their breaches are counted: the stops tell their KL."""
    rest = state.kl_rest
    if rest is None:
        return
    answered = {
        stop.update: stop.kl_divergence
        for stop in state.early_stops.items
        if rest.last - rest.n <= stop.update < rest.last and _worked(stop, stop.kl_divergence)
    }
    limits = state.limits(KL)
    statuses = [judge(value, limits, None).status for value in answered.values()]
    excuse(kl, rest, warnings=statuses.count(Status.WARNING), criticals=statuses.count(Status.CRITICAL))
