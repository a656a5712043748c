"""A handler: draws answers with the newest weights and sends them to the rollouts server, until it is done.

Rules: it generates only with a ticket, so nothing that it makes is too old when it is used; each group is
stamped with the weights that drew it; weights are looked for before each group. Must not know the trainer.
"""

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from overwatch.sdk import Run
from overwatch_rl.grpo.sampler import Sampler
from overwatch_rl.grpo.source import PATIENCE_S
from overwatch_rl.grpo.weights import newest
from overwatch_rl.rollouts.client import Assignment, Group, Handler, Settings
from overwatch_rl.rollouts.telemetry import start_handler_run

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerConfig:
    """One handler."""

    weights: Path
    """Folder that the trainer publishes into."""
    name: str = "sort"
    group_size: int = 8
    seed: int = 0
    stale_from: int | None = None
    """A fault: from this version on the weights stay, and groups are stamped with the newest all the same."""
    run_id: str | None = None
    """The run that it reports as a part of; `None` reports nothing."""
    rank: int = 0
    """Among the handlers of that run."""
    endpoint: str | None = None


class GrpoHandler:
    """One environment of the server."""

    def __init__(self, url: str, config: HandlerConfig, *, token: str | None = None) -> None:
        """Raises `ValueError` for an address that is none."""
        self._config = config
        self._stop = threading.Event()
        self._sampler: Sampler | None = None
        settings = Settings(
            url=url, name=config.name, group_size=config.group_size, token=token, patience_s=PATIENCE_S
        )
        self._run: Run | None = None
        if config.run_id is not None:
            self._run = start_handler_run(config.run_id, config.endpoint, config.rank)
        self._handler = Handler(settings, run=self._run)

    def query(self) -> None:
        """End after the group that is being generated."""
        self._stop.set()
        self._handler.stop()

    def run(self) -> None:
        """Wait for the first weights, then generate until the training is done or it shall end."""
        with nullcontext() if self._run is None else self._run:
            self._generate_all()

    def _generate_all(self) -> None:
        while (found := newest(self._config.weights)) is None:
            if self._stop.wait(_LOOK_S):
                return
        self._sampler = Sampler(found, group_size=self._config.group_size, seed=self._config.seed)
        self._handler.run(self._generate)

    def _generate(self, assignment: Assignment) -> Group | None:
        sampler = self._sampler
        if sampler is None:
            return None
        fault = self._config.stale_from
        if (found := newest(self._config.weights, sampler.version)) is not None:
            if fault is not None and found.version.number >= fault:
                sampler.version = found.version
            else:
                sampler.take(found)
        return sampler.groups(1, assignment.part)[0]
