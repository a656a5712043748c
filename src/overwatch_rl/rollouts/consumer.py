"""The trainer's side of the rollouts API: batches by lease.

    trainer = Consumer(Target(url="http://127.0.0.1:8000"))
    trainer.register(batch_size=64, max_token_len=2048)
    while (batch := trainer.batch()) is not None: …; trainer.state_version(step); trainer.acknowledge(batch)

A batch is acknowledged once what was learnt from it is kept; until then the server would deliver it again.
State the version before the acknowledgement, so that nothing is generated with an old one. Version numbers
count batches: one that was trained on four raises it by four. Must not know torch.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from overwatch.sdk import Run
from overwatch_rl.rollouts.calls import CallError, Calls, StoppedError, Target
from overwatch_rl.web.spans import CONSUMED_A_SECOND, HEADER, Spans

GONE = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedBatch:
    """Groups to learn from, and the lease that they are held by."""

    lease: int
    expires_in_s: float
    groups: list[dict[str, Any]]
    """As their handlers sent them."""
    items: list[dict[str, Any]]
    """Beside each group: id, env_id, version, age, whether it was delivered before, its traceparent."""


class Consumer:
    """A trainer that acknowledges."""

    def __init__(self, target: Target, run: Run | None = None) -> None:
        """With a run, each batch is a span in the turn of its loop, linked to the traces of its groups."""
        self._target = target
        self._run = run
        self._spans = Spans(run, CONSUMED_A_SECOND)
        self._calls = Calls(target)

    def register(
        self, *, batch_size: int, max_token_len: int, num_steps: int | None = None, starting_step: int = 0,
        max_staleness: int | None = None, **run: object,
    ) -> None:  # fmt: skip
        """Register; `run` has `wandb_group`, `wandb_project`, `checkpoint_dir` and the like."""
        defaults = {
            "wandb_group": "",
            "wandb_project": "",
            "checkpoint_dir": "",
            "save_checkpoint_interval": -1,
        }
        self._calls.post(
            "/register",
            {
                **defaults,
                **run,
                "batch_size": batch_size,
                "max_token_len": max_token_len,
                "num_steps": -1 if num_steps is None else num_steps,
                "starting_step": starting_step,
                "max_staleness": max_staleness,
            },
        )

    def try_batch(self) -> LeasedBatch | dict[str, Any]:
        """A batch, or the reply that names what is lacking."""
        turn = None if self._run is None else self._run.traceparent
        with self._spans.root("rollouts.consume", turn) as span:
            if span is None:
                return self._requested({})
            found = self._requested({HEADER: span.traceparent})
            span.is_void = not isinstance(found, LeasedBatch)
            if isinstance(found, LeasedBatch):
                span.attributes["groups"] = len(found.groups)
                for item in found.items:
                    span.link(item.get("traceparent"))
            return found

    def _requested(self, headers: dict[str, str]) -> LeasedBatch | dict[str, Any]:
        reply: dict[str, Any] = self._calls.get("/batch", headers={"Overwatch-Lease": "1", **headers})
        if reply["batch"] is None:
            return reply
        if reply.get("status") == "error":
            raise CallError(f"GET /batch: {reply['message']}", 200, reply)
        return LeasedBatch(
            lease=reply["lease"]["id"],
            expires_in_s=reply["lease"]["expires_in_s"],
            groups=reply["batch"],
            items=reply["items"],
        )

    def batch(self) -> LeasedBatch | None:
        """Wait for a batch; `None` once every step has had its own, or where the target was stopped."""
        while not isinstance(found := self.try_batch(), LeasedBatch):
            if found["lack"] == "done" or self._target.stop.wait(found["retry_s"]):
                return None
        return found

    def batches(self) -> Iterator[LeasedBatch]:
        """Every batch of a run, each acknowledged when the next one is asked for."""
        with contextlib.suppress(StoppedError):
            while (found := self.batch()) is not None:
                yield found
                self.acknowledge(found)

    def acknowledge(self, batch: LeasedBatch) -> bool:
        """The batch is used; `False` where its lease was over and its groups are delivered again."""
        return self._ended(f"/lease/{batch.lease}/ack") == "acknowledged"

    def release(self, batch: LeasedBatch) -> bool:
        """Give a batch back: its groups are delivered again."""
        return self._ended(f"/lease/{batch.lease}/release") == "released"

    def extend(self, batch: LeasedBatch, seconds: float | None = None) -> bool:
        """Hold a batch for so long from now; `False` where its lease was over."""
        body = None if seconds is None else {"seconds": seconds}
        return self._ended(f"/lease/{batch.lease}/extend", body) is None

    def _ended(self, path: str, body: object = None) -> str | None:
        try:
            ended: str | None = self._calls.post(path, body)["ended"]
        except CallError as error:
            if error.status != GONE:
                raise
            return "unknown"
        return ended

    def state_version(self, number: int, lineage: int = 0, resumed_from: int | None = None) -> None:
        """State which version of the policy the trainer has; within a lineage numbers only rise."""
        self._calls.post("/version", {"number": number, "lineage": lineage, "resumed_from": resumed_from})

    def close(self) -> None:
        """Close the connection; leases stay until they expire."""
        self._calls.close()
