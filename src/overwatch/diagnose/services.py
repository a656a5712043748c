"""What is wrong with a rollouts service: starved, full, stale, environments that are dead. Pure.

Rules: each process is judged by what it reported itself, and only while it reports; a number that it did not
report makes no finding. A trainer that waits for sequences is no fault as long as the next batch is near.
"""

from collections.abc import Iterator
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.catalog.services import (
    ACCEPTED,
    BATCH_SIZE,
    BATCHES,
    CAPACITY,
    DATA_AGE,
    ENV_SILENCE,
    ENVS,
    ENVS_SILENT,
    EXPIRED,
    MAX_STALENESS,
    QUEUE_SEQUENCES,
    SERVED,
)
from overwatch.diagnose.problem import SECOND_NS, Patience, Problem
from overwatch.state.run import RunState
from overwatch.state.services import Service

FRESH_S: Final = 30.0
"""A process that has not reported for longer is not judged by what it reported."""
FAR_S: Final = 120.0
"""A batch that will be complete later than this is far."""
FULL: Final = 0.95
"""Share of what may wait from which on the queue is full."""
WASTED: Final = 0.1
"""Share of the accepted sequences that became too old, from which on it is too many."""
DONE: Final = "done"
"""How a request for a batch ends after the last step: nothing waits any more."""
_PATIENCE: Final = Patience(hold=30 * SECOND_NS, clear=15 * SECOND_NS, cooldown=60 * SECOND_NS)


def service_problems(state: RunState, tick: int) -> Iterator[Problem]:
    """Everything that is wrong with services at `tick`, Unix nanoseconds on the stamp clock."""
    for service in state.services.processes.values():
        if QUEUE_SEQUENCES.name in service.gauges and tick - service.stamp <= FRESH_S * 1e9:
            for found in (_starved(service), _full(service), _stale(service), _dead(service)):
                if found is not None:
                    yield found


def _starved(service: Service) -> Problem | None:
    """The trainer asks in vain, and at this pace the next batch is far."""
    waiting, size = service.value(QUEUE_SEQUENCES.name), service.value(BATCH_SIZE.name)
    asked = service.recently(BATCHES.name, but=DONE)
    if waiting is None or not size or waiting >= size or not asked or service.recently(SERVED.name):
        return None
    pace = service.recently(ACCEPTED.name) or 0.0
    left_s = (size - waiting) / pace if pace else None
    if left_s is not None and left_s <= FAR_S:
        return None
    when = "none comes" if left_s is None else f"{pace:.2g}/s come: the next batch is {_span(left_s)} away"
    return _problem(
        service,
        "rollouts-starved",
        f"{waiting:,.0f} of {size:,.0f} sequences wait and {when}",
        "look at the handlers: are they there, are they paused, is what they send refused",
    )


def _full(service: Service) -> Problem | None:
    """As many sequences wait as may."""
    waiting, most = service.value(QUEUE_SEQUENCES.name), service.value(CAPACITY.name)
    if waiting is None or not most or waiting < FULL * most:
        return None
    taken = service.recently(SERVED.name)
    how = f"the trainer takes {taken:.2g}/s" if taken else "the trainer took none for a minute"
    return _problem(
        service,
        "rollouts-full",
        f"{waiting:,.0f} of {most:,.0f} sequences wait, new ones are held back; {how}",
        "look at the trainer: is it alive, is an update slow; fewer handlers do where it is as it should be",
    )


def _stale(service: Service) -> Problem | None:
    """What waits is older than it may be, or much became too old while it waited."""
    age, most = service.value(DATA_AGE.name), service.value(MAX_STALENESS.name)
    gone, came = service.recently(EXPIRED.name) or 0.0, service.recently(ACCEPTED.name) or 0.0
    hint = "hand out fewer tickets or pause handlers earlier, allow more versions, or take larger batches"
    # An age that nothing has any more is not reported anew.
    if service.value(QUEUE_SEQUENCES.name) and age is not None and most is not None and age > most:
        why = f"the oldest sequence that waits is {age:,.0f} versions behind, {most:,.0f} are allowed"
        return _problem(service, "rollouts-stale", why, hint)
    if gone > WASTED * came:
        why = f"{gone:.2g} sequences/s became too old while they waited, {came:.2g}/s were accepted"
        return _problem(service, "rollouts-stale", why, hint)
    return None


def _dead(service: Service) -> Problem | None:
    """Environments that registered are silent beyond their lease."""
    silent, known = service.value(ENVS_SILENT.name), service.value(ENVS.name)
    if not silent:
        return None
    longest = service.value(ENV_SILENCE.name)
    since = "" if longest is None else f", the longest for {_span(longest)}"
    of = f"{silent:,.0f}" if known is None else f"{silent:,.0f} of {known:,.0f}"
    return _problem(
        service,
        "rollouts-env-dead",
        f"{of} environments silent{since}; their share went to the others",
        "look at the handler's process and log; what it sends later is accepted, and its share comes back",
        severity="critical" if known is not None and silent >= known else "warning",
    )


def _span(seconds: float) -> str:
    return duration(min(seconds, 1e9), coarse=True)


def _problem(service: Service, code: str, message: str, hint: str, severity: str = "warning") -> Problem:
    return Problem(
        code=code,
        severity=severity,
        scope="service",
        subject=service.name,
        at=service.at,
        message=message,
        hint=hint,
        patience=_PATIENCE,
    )
