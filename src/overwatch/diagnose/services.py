"""What is wrong with the services of a run: rollouts, learner, actors, replay, orchestrator. Pure.

Rules: each process is judged by what it reported itself, and only while it reports; a number that it did not
report makes no finding. A trainer that waits for sequences is no fault as long as the next batch is near.
While the run is paused nothing that stands still is wrong.
"""

import math
from collections.abc import Iterator
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
from overwatch.diagnose.problem import SECOND_NS, STEADY, Patience, Problem
from overwatch.state.run import RunState
from overwatch.state.services import Service

FRESH_S: Final = 30.0
"""A process that has not reported for longer is not judged by what it reported."""
WINDOW_S: Final = 60.0
"""What is counted of late holds a pause until it is so long over."""
FAR_S: Final = 120.0
"""A batch that will be complete later than this is far."""
FULL: Final = 0.95
"""Share of what may wait from which on the queue is full."""
WASTED: Final = 0.1
"""Share of the accepted sequences that became too old, from which on it is too many."""
DONE: Final = "done"
"""How a request for a batch ends after the last step: nothing waits any more."""
FAILING: Final = 0.05
"""Share of requests to replay that may fail."""
LEAST_REQUESTS: Final = 5.0
"""Requests in a minute below which no share is one."""
WEIGHTS_S: Final = 300.0
"""Without new weights."""
STALLED_S: Final = 600.0
"""Without an optimiser step."""
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
_BEYOND: Final = (
    (
        DEGRADED, 0.0, math.inf, "learner-degraded", "the learner goes on without a service that it needs",
        "its log names the service: start that again; the learner goes on by itself",
    ),
    (
        CHECKPOINT_STALLED, 0.0, math.inf, "checkpoint-stalled",
        "no checkpoint can be stored, and training goes on without one",
        "look at the store's room and access; what could not be stored is tried again by itself",
    ),
    (
        VERSIONS_BEHIND, 8.0, math.inf, "actor-stale",
        "it acts with weights that are {value:,.0f} versions old",
        "see its log: does it reach the version key, do weights verify; or make rollouts shorter",
    ),
    (
        HEARTBEAT_AGE, 45.0, 135.0, "heartbeats-late", "no heartbeat for {span}",
        "is the learner there; where it lives, look at the way from it to the orchestrator",
    ),
)  # fmt: skip
"""Gauges; the values beyond which they are a warning, and critical; code, message and hint."""

Statement = tuple[str, ...]
"""Code, message, hint, and the severity where it is not a warning always."""


def service_problems(state: RunState, tick: int) -> Iterator[Problem]:
    """Everything that is wrong with services at `tick`, Unix nanoseconds on the stamp clock."""
    for service in state.services.processes.values():
        if tick - service.stamp <= FRESH_S * 1e9:
            since_s = (service.at - state.resumed_at) / 1e9
            yield from (_problem(service, *stated) for stated in _stated(service, state, since_s))
    yield from _recoveries(state)
    took = sorted(state.save_seconds.items)
    p95 = took[math.ceil(0.95 * len(took)) - 1] if len(took) >= LEAST_SAVES else 0.0
    if p95 > SLOW_SAVE_S and state.checkpoint is not None:
        yield Problem(
            code="checkpoint-slow",
            at=state.checkpoint.at,
            message=f"checkpoints take up to {_span(p95)} (p95 of the last {len(took)})",
            hint="look at the disk or the bucket; save less often, or compress less",
        )


def _stated(service: Service, state: RunState, since_s: float) -> Iterator[Statement]:
    """What is wrong with a process, so long after the end of the newest pause."""
    for row, most, grave, code, words, hint in _BEYOND:
        value = service.value(row.name) or 0.0
        if value > most:
            message = words.format(value=value, span=_span(value))
            yield code, message, hint, "critical" if value > grave else "warning"
    yield from _unanswered(service, since_s)
    if state.paused_at is not None:
        return
    if since_s >= WINDOW_S:
        yield from _rollouts(service)
    grown, age_s = service.grown_at(SGD_STEPS.name), service.value(WEIGHTS_AGE.name) or 0.0
    for_s = 0.0 if grown is None else min((service.at - grown) / 1e9, since_s)
    if for_s >= STALLED_S:
        hint = "without experience look at replay and actors, else at its stack (py-spy dump)"
        yield "learner-stalled", f"no optimiser step for {_span(for_s)}", hint
    if min(age_s, since_s) > WEIGHTS_S:
        hint = "does it take optimiser steps; does publishing fail (learner_weights_publish_total)"
        yield "weights-old", f"no new weights for {_span(age_s)}", hint


def _unanswered(service: Service, since_s: float) -> Iterator[Statement]:
    """Requests that fail beyond a share, heartbeats that nobody answers, experience that is not there."""
    for row, what in ((SAMPLES, "samples"), (APPENDS, "appends"), (REQUESTS, "requests")):
        by_status = service.recently_by(row.name, "status")
        total = sum(by_status.values())
        bad = {word: pace for word, pace in by_status.items() if word.lower() not in _WELL}
        # Experience that waited for the end of a pause is late, and counts for a minute more.
        enough = WINDOW_S * total >= LEAST_REQUESTS and since_s >= 2 * WINDOW_S
        if enough and sum(bad.values()) > FAILING * total:
            most, share = max(bad, key=lambda word: (bad[word], word)), sum(bad.values()) / total
            message = f"{share:.0%} of its {what} failed in the last minute, most with {most!r}"
            yield "replay-failing", message, "look at the replay server: its log, its memory, its disk"
            break
    beats = service.recently_by(HEARTBEATS.name, "status")
    if any(beats.values()) and not beats.get("ok"):
        hint = (
            "start the orchestrator again, or mend address, token or certificate; training goes on meanwhile"
        )
        yield "heartbeats-failing", "none of its heartbeats was answered in the last minute", hint
    # What was counted already in its first record has no pace.
    grown = service.grown_at(REPLAY_GAPS.name)
    if service.recently(REPLAY_GAPS.name) or (grown and (service.at - grown) / 1e9 < WINDOW_S):
        message = "experience is missing between its checkpoint and what replay serves"
        hint = "its log states from which lease to which; a table in memory does not outlive its server"
        yield "replay-gap", message, hint


def _rollouts(service: Service) -> Iterator[Statement]:
    """A queue of sequences that is empty, full or too old, and environments beyond their lease."""
    waiting, size, most, age, allowed, silent, known, longest = (
        service.value(row.name)
        for row in (
            QUEUE_SEQUENCES, BATCH_SIZE, CAPACITY, DATA_AGE, MAX_STALENESS, ENVS_SILENT, ENVS, ENV_SILENCE,
        )
    )  # fmt: skip
    if waiting is None:
        return
    came, served, gone = (service.recently(row.name) or 0.0 for row in (ACCEPTED, SERVED, EXPIRED))
    if waiting < (size or 0.0) and service.recently(BATCHES.name, but=DONE) and not served:
        left_s = ((size or 0.0) - waiting) / came if came else math.inf
        when = f"{came:.2g}/s come: the next batch is {_span(left_s)} away" if came else "none comes"
        hint = "look at the handlers: are they there, are they paused, is what they send refused"
        if left_s > FAR_S:
            yield "rollouts-starved", f"{waiting:,.0f} of {size:,.0f} sequences wait and {when}", hint
    if most and waiting >= FULL * most:
        how = f"the trainer takes {served:.2g}/s" if served else "the trainer took none for a minute"
        message = f"{waiting:,.0f} of {most:,.0f} sequences wait, new ones are held back; {how}"
        hint = "look at the trainer: is it alive, is an update slow; else fewer handlers do"
        yield "rollouts-full", message, hint
    # An age that nothing has any more is not reported anew.
    is_old = waiting and age is not None and allowed is not None and age > allowed
    if is_old or gone > WASTED * came:
        message = f"{gone:.2g} sequences/s became too old while they waited, {came:.2g}/s were accepted"
        if is_old:
            message = (
                f"the oldest sequence that waits is {age:,.0f} versions behind, {allowed:,.0f} are allowed"
            )
        hint = "hand out fewer tickets or pause handlers earlier, allow more versions, or take larger batches"
        yield "rollouts-stale", message, hint
    if silent:
        since = "" if longest is None else f", the longest for {_span(longest)}"
        of = "" if known is None else f" of {known:,.0f}"
        message = f"{silent:,.0f}{of} environments silent{since}; their share went to the others"
        hint = (
            "look at the handler's process and log; what it sends later is accepted, and its share comes back"
        )
        severity = "critical" if silent >= (known or math.inf) else "warning"
        yield "rollouts-env-dead", message, hint, severity


def _span(seconds: float) -> str:
    return duration(min(seconds, 1e9), coarse=True)


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
