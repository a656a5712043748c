"""What is wrong with the services of a run: rollouts, learner, actors, replay, orchestrator. Pure.

Rules: each process is judged by what it reported itself, and only while it reports; a number that it did not
report makes no finding. A trainer that waits for sequences is no fault as long as the next batch is near.
While the run is paused nothing that stands still is wrong.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.catalog.learner import (
    APPENDS,
    CHECKPOINT_STALLED,
    DEGRADED,
    HEARTBEATS,
    REPLAY_GAPS,
    SAMPLES,
    SGD_STEPS,
    VERSIONS_BEHIND,
    WEIGHTS_AGE,
)
from overwatch.catalog.metric import Metric
from overwatch.catalog.replay import HEARTBEAT_AGE, REQUESTS
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
from overwatch.catalog.tallies import SCOPE_OF_ROLE
from overwatch.diagnose.liveness import how_it_left
from overwatch.diagnose.problem import SECOND_NS, STEADY, Patience, Problem
from overwatch.state.run import RunState
from overwatch.state.services import WINDOW_NS, Service
from overwatch.state.sources import LEARNS, Source

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


def service_problems(state: RunState, tick: int) -> Iterator[Problem]:
    """Everything that is wrong with services at `tick`, Unix nanoseconds on the stamp clock."""
    for service in state.services.processes.values():
        # What is counted of late holds a pause until it is a minute over.
        if service.at - state.resumed_at < WINDOW_NS:
            continue
        if QUEUE_SEQUENCES.name in service.gauges and tick - service.stamp <= FRESH_S * 1e9:
            for found in (_starved(service), _full(service), _stale(service), _dead(service)):
                if found is not None:
                    yield found


def _starved(service: Service) -> Problem | None:
    """The trainer asks in vain, and at this pace the next batch is far."""
    waiting, size = service.value(QUEUE_SEQUENCES.name), service.value(BATCH_SIZE.name)
    requested = service.recently(BATCHES.name, but=DONE)
    if waiting is None or not size or waiting >= size or not requested or service.recently(SERVED.name):
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


FAILING: Final = 0.05
"""Share of requests to replay that may fail."""
LEAST_REQUESTS: Final = 5.0
"""Requests in a minute below which no share is one."""
BEAT_LATE_S: Final = 45.0
BEAT_LOST_S: Final = 135.0
"""Ages of the newest heartbeat from which on the orchestrator takes a run for stale, and for unresponsive."""
STALLED_S: Final = 600.0
"""Without an optimiser step."""
WEIGHTS_S: Final = 300.0
"""Without new weights."""
BEHIND: Final = 8.0
"""Versions that an actor may be behind."""
SLOW_SAVE_S: Final = 60.0
LEAST_SAVES: Final = 3
RECOVERED_S: Final = 600.0
"""For so long what training did about broken numbers is found."""
_WELL: Final = frozenset({"ok", "empty", "waited", "cancelled", "refused", "abandoned", "resource_exhausted"})
"""How a request ends that did not fail: refused is what was asked for, not who answers; an append that waited
found no room, which is the learner's to make."""
_SLOW: Final = Patience(hold=30 * SECOND_NS, clear=15 * SECOND_NS, cooldown=60 * SECOND_NS)
_SOON: Final = Patience(hold=5 * SECOND_NS, clear=5 * SECOND_NS, cooldown=30 * SECOND_NS)
_PATIENCE: Final = {
    **dict.fromkeys(("rollouts-starved", "rollouts-full", "rollouts-stale", "rollouts-env-dead"), _SLOW),
    **dict.fromkeys(("learner-degraded", "checkpoint-stalled", "heartbeats-late"), _SOON),
}
"""By code, where it is not that of a steady judgement."""
_RECOVERY: Final = {"learning_rate_cut": "learning-rate-cut", "rollback": "rolled-back"}


def experience_problems(state: RunState, tick: int) -> Iterator[Problem]:
    """Everything that is wrong with them at `tick`, Unix nanoseconds on the stamp clock."""
    for service in state.services.processes.values():
        if tick - service.stamp > FRESH_S * 1e9:
            continue
        found = [_degraded(service), _unsaved(service), _behind(service), _gap(service)]
        found += [_unheard(service), _unseen(service)]
        # Experience that waited for the end of a pause is late, and counts for a minute more.
        if service.at - state.resumed_at >= 2 * WINDOW_NS:
            found.append(_failing(service))
        if state.paused_at is None:
            found += [_standing(service, state.resumed_at), _old(service, state.resumed_at)]
        yield from (one for one in found if one is not None)
    yield from _recoveries(state)
    slow = _slow_saves(state)
    if slow is not None:
        yield slow


def services_down(state: RunState, keys: Sequence[str], tick: int) -> Iterator[Problem]:
    """A finding for each service among processes that left a run which goes on without them.

    What was silent when `keys` were found at `tick` may have reported since.
    """
    for source in (state.sources[key] for key in keys):
        if source.role in SCOPE_OF_ROLE and source.stamp <= tick:
            yield _down(source, tick)


def _down(source: Source, tick: int) -> Problem:
    name = source.name.removesuffix(" 0")
    return Problem(
        code="service-down",
        severity="critical" if source.role in LEARNS else "warning",
        scope="service",
        subject=name,
        at=source.at,
        message=f"{name} {how_it_left(source, tick)}, while the run goes on",
        hint="start it again; what was accepted, saved and published is still there",
        patience=STEADY,
    )


def _failing(service: Service) -> Problem | None:
    """Too many of its requests, or of those that it answers, fail."""
    for row, what in ((SAMPLES, "samples"), (APPENDS, "appends"), (REQUESTS, "requests")):
        by_status = service.recently_by(row.name, "status")
        total = sum(by_status.values())
        bad = {word: pace for word, pace in by_status.items() if word.lower() not in _WELL}
        share = sum(bad.values()) / total if total else 0.0
        if 60 * total >= LEAST_REQUESTS and share > FAILING:
            most = max(bad, key=lambda word: (bad[word], word))
            return _problem(
                service,
                "replay-failing",
                f"{share:.0%} of its {what} failed in the last minute, most with {most!r}",
                "look at the replay server: its log, its memory, its disk",
            )
    return None


def _degraded(service: Service) -> Problem | None:
    if not service.value(DEGRADED.name):
        return None
    return _problem(
        service,
        "learner-degraded",
        "the learner goes on without a service that it needs",
        "its log names the service: start that again; the learner goes on by itself",
    )


def _unsaved(service: Service) -> Problem | None:
    if not service.value(CHECKPOINT_STALLED.name):
        return None
    return _problem(
        service,
        "checkpoint-stalled",
        "no checkpoint can be stored, and training goes on without one",
        "look at the store's room and access; what could not be stored is tried again by itself",
    )


def _behind(service: Service) -> Problem | None:
    behind = service.value(VERSIONS_BEHIND.name)
    if behind is None or behind <= BEHIND:
        return None
    return _problem(
        service,
        "actor-stale",
        f"it acts with weights that are {behind:,.0f} versions old",
        "see its log: does it reach the version key, do weights verify; or make rollouts shorter",
    )


def _gap(service: Service) -> Problem | None:
    if not service.recently(REPLAY_GAPS.name) and not _began_with(service, REPLAY_GAPS):
        return None
    return _problem(
        service,
        "replay-gap",
        "experience is missing between its checkpoint and what replay serves",
        "its log states from which lease to which; a table in memory does not outlive its server",
    )


def _unheard(service: Service) -> Problem | None:
    """It sends heartbeats, and none of them was answered of late."""
    by_status = service.recently_by(HEARTBEATS.name, "status")
    if not any(pace for word, pace in by_status.items() if word != "ok") or by_status.get("ok"):
        return None
    return _problem(
        service,
        "heartbeats-failing",
        "none of its heartbeats was answered in the last minute",
        "start the orchestrator again, or mend address, token or certificate; training goes on meanwhile",
    )


def _unseen(service: Service) -> Problem | None:
    """The orchestrator has had no heartbeat for too long."""
    age_s = service.value(HEARTBEAT_AGE.name)
    if age_s is None or age_s <= BEAT_LATE_S:
        return None
    return _problem(
        service,
        "heartbeats-late",
        f"no heartbeat for {_span(age_s)}",
        "is the learner there; where it lives, look at the way from it to the orchestrator",
        severity="critical" if age_s > BEAT_LOST_S else "warning",
    )


def _standing(service: Service, resumed_at: int) -> Problem | None:
    """It lives and takes no optimiser steps."""
    grown = service.grown_at(SGD_STEPS.name)
    for_s = 0.0 if grown is None else (service.at - max(grown, resumed_at)) / 1e9
    if for_s < STALLED_S:
        return None
    return _problem(
        service,
        "learner-stalled",
        f"no optimiser step for {_span(for_s)}",
        "without experience look at replay and actors, else at its stack (py-spy dump)",
    )


def _old(service: Service, resumed_at: int) -> Problem | None:
    age_s = service.value(WEIGHTS_AGE.name)
    if age_s is None or min(age_s, (service.at - resumed_at) / 1e9) <= WEIGHTS_S:
        return None
    return _problem(
        service,
        "weights-old",
        f"no new weights for {_span(age_s)}",
        "does it take optimiser steps; does publishing fail (learner_weights_publish_total)",
    )


def _recoveries(state: RunState) -> Iterator[Problem]:
    """The newest of each kind of what training did about broken numbers."""
    newest = {event.action: event for event in state.recoveries.items}
    for action, code in _RECOVERY.items():
        event = newest.get(action)
        if event is None or (state.last_at - event.at) / 1e9 > RECOVERED_S:
            continue
        spans = "" if event.before is None or event.after is None else f": {event.before:g} > {event.after:g}"
        cause = "" if event.cause is None else f", because of update {event.cause:,}"
        yield Problem(
            code=code,
            at=event.at,
            message=f"{action.replace('_', ' ')}{spans}{cause}",
            hint="look at what that update learned from: rewards, observations, log-probabilities",
        )


def _slow_saves(state: RunState) -> Problem | None:
    """One in twenty of the newest checkpoints took too long."""
    took = sorted(state.save_seconds.items)
    if len(took) < LEAST_SAVES or state.checkpoint is None:
        return None
    p95 = took[ceil(0.95 * len(took)) - 1]
    if p95 <= SLOW_SAVE_S:
        return None
    return Problem(
        code="checkpoint-slow",
        at=state.checkpoint.at,
        message=f"checkpoints take up to {_span(p95)} (p95 of the last {len(took)})",
        hint="look at the disk or the bucket; save less often, or compress less",
    )


def _began_with(service: Service, row: Metric) -> bool:
    """Whether something was counted already in its first record, not long ago: it has no pace then."""
    grown = service.grown_at(row.name)
    return grown is not None and service.at - grown < 60 * SECOND_NS


def _problem(service: Service, code: str, message: str, hint: str, severity: str = "warning") -> Problem:
    return Problem(
        code=code,
        severity=severity,
        scope="service",
        subject=service.name,
        at=service.at,
        message=message,
        hint=hint,
        patience=_PATIENCE.get(code, STEADY),
    )
