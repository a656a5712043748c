"""A learner and its orchestrator: what a command changes in the loop, and the run's record.

Rules: a tune changes the algorithm's own configuration between two updates and nothing that a checkpoint is
compared by; what was tuned before is set again after a resume. Must not know how commands travel.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from overwatch.events import Severity
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.learner.control import AttendSettings, Beat, Control, Mailbox, attend
from overwatch_rl.learner.service import LearnerLoop
from overwatch_rl.orchestrator.client import PASSING, Calling, OrchestratorClient, OrchestratorError
from overwatch_rl.orchestrator.commands import Command, Done, Issued, Pause, Tune
from overwatch_rl.orchestrator.wire import ArtifactRequest, RunRecord, RunRequest

_BEGIN_S: Final = 5.0
"""So long a learner waits for its orchestrator before it begins without."""
_POLL_INTERVAL_S: Final = 0.1


class LoopCommands:
    """What a command does in a loop."""

    def __init__(self, loop: LearnerLoop, save: Callable[[], str | None]) -> None:
        self._loop = loop
        self._save = save

    def tune(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Set hyperparameters of the algorithm; their values before."""
        algorithm: Any = self._loop.algorithm
        config, known = algorithm.config, self._loop.tunable
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(
                f"values.{unknown[0]}: this algorithm has none to tune; use {', '.join(sorted(known))}"
            )
        before = {name: float(getattr(config, name)) for name in values}
        algorithm.config = replace(config, **values)
        if "learning_rate" in values:
            self._loop.non_finite.tune(values["learning_rate"])
            algorithm.set_learning_rate(values["learning_rate"])
        return before

    def drain(self) -> None:
        """Wait for the device, and fetch no more."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._loop.feed.hold(is_held=True)

    def refill(self) -> None:
        """Fetch again."""
        self._loop.feed.hold(is_held=False)

    def last_checkpoint(self) -> str | None:
        """Write one and wait for it."""
        return self._save()


@dataclass(frozen=True, slots=True)
class OrchestratorSession:
    """The orchestrator of a run."""

    url: str
    run_id: str
    token: str | None
    config: LearnerConfig
    ca: Path | None = None
    """PEM: the authority of its certificate; the system's without."""

    def client(self) -> OrchestratorClient:
        """For one event loop."""
        return OrchestratorClient(self.url, self.run_id, self.token, Calling(ca=self.ca))

    def begun(self, public_key: str) -> RunRecord | None:
        """The run's record; `None` where the orchestrator does not answer. Raises `OrchestratorError`."""
        try:
            return asyncio.run(self._registered(public_key))
        except OrchestratorError as error:
            if _is_away(error):
                return None
            raise

    async def _registered(self, public_key: str) -> RunRecord:
        """Make the run where it is not there yet, with the key of its weights; its record."""
        calling = Calling(deadline_s=_BEGIN_S, timeout_s=_BEGIN_S, ca=self.ca)
        async with OrchestratorClient(self.url, self.run_id, self.token, calling) as client:
            config = self.config.model_dump(mode="json")
            await client.create(RunRequest(config=config, seed_base=self.config.seed))
            return await client.publish_key(hex_of(public_key))

    def control(
        self,
        obeying: LoopCommands,
        loop: LearnerLoop,
        stop: Callable[[], str | None],
        record: RunRecord | None,
    ) -> tuple[Mailbox, Control]:
        """Both sides of obedience; what was tuned in an earlier life is set again."""
        if record is not None and record.tuned:
            obeying.tune(record.tuned)
        is_paused = record is not None and record.state == "paused"
        mailbox = Mailbox(loop.progress())

        def obeyed(issued: Issued, done: Done) -> None:
            changes = ", ".join(f"{k} {v.before:g} -> {v.after:g}" for k, v in done.changes.items())
            kind = type(issued.command).__name__.lower()
            loop.log(Severity.INFO, f"command {issued.id}, {kind}: {done.outcome}; {changes or done.detail}")

        return mailbox, Control(mailbox, obeying, obeyed, stop, is_paused=is_paused)

    async def attached(self, public_key: str, mailbox: Mailbox) -> bool:
        """Register once the orchestrator answers, and have its record obeyed before the first heartbeat.

        False where training ended before that.
        """
        record = None
        while record is None:
            if mailbox.outcome is not None:
                return False
            try:
                record = await self._registered(public_key)
            except OrchestratorError as error:
                if not _is_away(error):
                    mailbox.fail(f"control has ended: {error}")
                    raise
        caught_up: list[Command] = [Tune(values=record.tuned)] if record.tuned else []
        caught_up += [Pause()] if record.state == "paused" else []
        for number, command in enumerate(caught_up):
            mailbox.deliver(Issued(id=f"record-{number}", command=command))
        while any(mailbox.answered(f"record-{number}") is None for number in range(len(caught_up))):
            if mailbox.outcome is not None:
                return False
            await asyncio.sleep(_POLL_INTERVAL_S)
        if record.state == "paused":
            mailbox.begin_paused()
        return True

    async def attend(self, mailbox: Mailbox, on_heartbeat: Callable[[Beat], None]) -> None:
        """Beat, fetch commands and acknowledge, until training is over."""
        settings = AttendSettings(heartbeat_s=self.config.heartbeat_s)
        async with self.client() as client:
            await attend(client, mailbox, settings, on_heartbeat)

    async def register(self, written: Written) -> None:
        """A checkpoint is there."""
        async with self.client() as client:
            await client.register_artifact(
                ArtifactRequest(
                    kind="checkpoint", version=written.version, uri=written.path, sha256=written.sha256
                )
            )


def _is_away(error: OrchestratorError) -> bool:
    return error.status is None or error.status in PASSING


def hex_of(public_key: str) -> str:
    """A public key as a run's record has it.

    >>> hex_of("ed25519:" + "A" * 43 + "=")[:4]
    '0000'
    """
    return base64.b64decode(public_key.partition(":")[2]).hex()


def text_of(public_key: str) -> str:
    """A run's record's public key as a verifier takes it.

    >>> text_of(hex_of("ed25519:" + "A" * 43 + "="))[:12]
    'ed25519:AAAA'
    """
    return f"ed25519:{base64.b64encode(bytes.fromhex(public_key)).decode()}"
