"""Values whose unit shows in them: an entropy beyond 0 to 1 is no share of its maximum, so it is in nats.

Every library's own entropy is in nats, of a density even negative. What is in nats is judged by nothing,
unless the run declared the maximum: then its share is worked out. Must not know findings.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from overwatch.catalog.gradients import ENTROPY_NATS
from overwatch.catalog.policy import ENTROPY
from overwatch.events import Measured
from overwatch.state.policy import unjudge
from overwatch.state.run import Entry, RunState

MAX_ENTROPY: Final = "max_entropy"
"""Of a run's configuration: the entropy of a uniform choice, in nats."""
MOST_SHARE: Final = 1.01
"""Rounding may bring a share a little above 1."""
LEAST_SHARE: Final = -0.01
T = TypeVar("T")


def settle_unit(state: RunState, event: Measured) -> Measured:
    """The measurement as it is folded; one entropy beyond 0 to 1 decides that all of its run are in nats."""
    sent = event.values.get(ENTROPY.name)
    if sent is None or not len(sent):
        return event
    if not state.entropy_in_nats:
        many = event.conflated
        ends = () if many is None else (many.low.get(ENTROPY.name), many.high.get(ENTROPY.name))
        values = [sent.first(), *(end.first() for end in ends if end is not None and len(end))]
        # What is not finite is beyond no end.
        if not any(value < LEAST_SHARE or value > MOST_SHARE for value in values if value - value == 0):
            return event
        state.entropy_in_nats = True
        if ENTROPY.name in state.policy:
            unjudge(state.policy[ENTROPY.name])
    return event if state.declared(MAX_ENTROPY) is None else _renamed(event)


def _renamed(event: Measured) -> Measured:
    many = event.conflated
    if many is not None:
        many = msgspec.structs.replace(
            many, low=_moved(many.low), high=_moved(many.high), warnings=_moved(many.warnings),
            criticals=_moved(many.criticals),
        )  # fmt: skip
    return msgspec.structs.replace(event, values=_moved(event.values), conflated=many)


def _moved(by_name: Mapping[str, T]) -> dict[str, T]:
    """The same, with entropy as nats; what was sent as `entropy_nats` stays."""
    rest = {name: value for name, value in by_name.items() if name != ENTROPY.name}
    return rest if ENTROPY.name not in by_name else {ENTROPY_NATS.name: by_name[ENTROPY.name]} | rest


def unit_line(event: Measured) -> Entry:
    """The feed's line of a run whose entropy turned out to be in nats."""
    return Entry(
        at=event.at,
        severity="warning",
        subsystem="policy",
        kind="log_line",
        message=(
            "entropy is no share of its maximum here: taken as nats; send it as entropy_nats, or its share "
            "as entropy_relative; n_actions or max_entropy in the run's config make one from the other"
        ),
    )
