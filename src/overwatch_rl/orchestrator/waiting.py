"""Waits until a run is registered: an actor may begin before its learner.

Rules: what another try may change is waited for, at growing intervals, until a limit or a stop; what is
refused is raised at once. Must not know what the record is for.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from overwatch_rl.orchestrator.client import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    PASSING,
    OrchestratorClient,
    OrchestratorError,
)
from overwatch_rl.orchestrator.wire import RunRecord

_WAITED_FOR: Final = PASSING | {None, HTTPStatus.NOT_FOUND}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long is waited."""

    limit_s: float
    stop: Callable[[], str | None]
    """Asked between two tries: an outcome to end with, or `None` to go on."""
    report: Callable[[str], None]
    """Given a line when waiting begins and when it ends well."""


async def registered(client: OrchestratorClient, patience: Patience) -> RunRecord | None:
    """The record of a run with the key of its weights; `None` where it was asked to stop.

    Raises `OrchestratorError` when it is refused, or was not there in time.
    """
    until, pause_s = time.monotonic() + patience.limit_s, FIRST_WAIT_S
    is_waiting = False
    while True:
        try:
            record = await client.run()
            if record.weights_public_key is not None:
                if is_waiting:
                    patience.report(f"the learner of run {client.run_id} has registered")
                return record
            error = OrchestratorError(f"run {client.run_id} has no public key yet; start its learner first")
        except OrchestratorError as failure:
            if failure.status not in _WAITED_FOR:
                raise
            error = failure
        if time.monotonic() + pause_s > until:
            raise error
        if not is_waiting:
            is_waiting = True
            limit, run = patience.limit_s, client.run_id
            patience.report(f"waits up to {limit:g} s for the learner of run {run} to register: {error}")
        if patience.stop() is not None:
            return None
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_WAIT_S)
