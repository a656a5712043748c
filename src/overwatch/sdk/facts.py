"""The facts of a run: each method is one kind of event that must arrive.

Rules: no method raises into training and none waits. Must not know numbers that come by the column.
"""

import os
import time
import traceback as tracebacks
from collections.abc import Sequence
from functools import partial
from typing import Final

from overwatch.catalog import Scope, Stage, find
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EnvsRemoved,
    Event,
    GateEvaluated,
    LogLine,
    NonFiniteSeen,
    SeedStageChanged,
    Severity,
)
from overwatch.sdk.channel import Channel, guarded
from overwatch.sdk.values import (
    Numbers,
    Numeric,
    Words,
    common_rows,
    ids,
    maybe_text,
    number,
    severity_of,
    stage_of,
    text,
    whole,
    words,
)
from overwatch.sdk.values import fields as text_fields

MAX_OFFENDERS: Final = 16


class Facts(Channel):
    """What a run tells besides numbers."""

    @guarded
    def actions(
        self,
        *,
        env_id: Numbers,
        op: Words,
        slot: Words = None,
        blueprint: Words = None,
        step: int | None = None,
    ) -> None:
        """What the policy did at this step, one entry an env; operations are words."""
        rows = common_rows(env_id, op)
        event = ActionTaken(
            at=time.time_ns(),
            env_id=ids(env_id, rows),
            op=words(op, rows),
            slot=self._maybe("slot", partial(words, rows=rows), slot),
            blueprint=self._maybe("blueprint", partial(words, rows=rows), blueprint),
            step=self._maybe("step", whole, step),
        )
        self._send(event)

    @guarded
    def seed_stage_changed(
        self,
        /,
        *,
        env_id: int,
        slot: str,
        seed_id: str,
        before: Stage | str,
        after: Stage | str,
        blueprint: str | None = None,
        alpha: Numeric | None = None,
        age: int | None = None,
        reason: str | None = None,
        **fields: object,
    ) -> None:
        """A seed moved from one stage to the next; `age` is how many steps it spent in the first."""
        event = SeedStageChanged(
            at=time.time_ns(),
            env_id=whole(env_id),
            slot=text(slot),
            seed_id=text(seed_id),
            before=stage_of(before),
            after=stage_of(after),
            blueprint=maybe_text(blueprint),
            alpha=self._maybe("alpha", number, alpha),
            age=self._maybe("age", whole, age),
            reason=maybe_text(reason),
            fields=text_fields(fields),
        )
        self._send(event)

    @guarded
    def gate_evaluated(
        self,
        *,
        env_id: int,
        slot: str,
        seed_id: str,
        gate: str,
        passed: bool,
        score: Numeric | None = None,
        checks_passed: Sequence[str] = (),
        checks_failed: Sequence[str] = (),
        message: str | None = None,
    ) -> None:
        """A gate of the seed lifecycle was checked."""
        event = GateEvaluated(
            at=time.time_ns(),
            env_id=whole(env_id),
            slot=text(slot),
            seed_id=text(seed_id),
            gate=text(gate),
            passed=bool(passed),
            score=self._maybe("score", number, score),
            checks_passed=tuple(text(check) for check in checks_passed or ()),
            checks_failed=tuple(text(check) for check in checks_failed or ()),
            message=maybe_text(message),
        )
        self._send(event)

    @guarded
    def fact(self, event: Event) -> None:
        """Emit a fact of `overwatch.events` as it is."""
        self._send(event)

    @guarded
    def env_crashed(
        self,
        env_id: int,
        error: BaseException | str,
        *,
        step: int | None = None,
        traceback: str | None = None,
    ) -> None:
        """An environment died; of an exception the traceback goes along."""
        said = f"{type(error).__name__}: {text(error)}" if isinstance(error, BaseException) else error
        if traceback is None and isinstance(error, BaseException) and error.__traceback__ is not None:
            traceback = "".join(tracebacks.format_exception(error))
        event = EnvCrashed(
            at=time.time_ns(),
            env_id=whole(env_id),
            error=text(said),
            step=self._maybe("step", whole, step),
            traceback=maybe_text(traceback),
        )
        self._send(event)

    @guarded
    def envs_removed(self, env_id: Numbers) -> None:
        """These envs are no more: nothing waits for them, and their ids may be given to new ones."""
        self._send(EnvsRemoved(at=time.time_ns(), env_id=ids(env_id, common_rows(env_id))))

    @guarded
    def non_finite(
        self,
        *,
        scope: Scope | str,
        metric: str,
        kind: str = "nan",
        count: int = 1,
        env_ids: Sequence[int] = (),
    ) -> None:
        """A value that must be finite was not; at most sixteen of its envs are named."""
        where = Scope(scope)
        row = find(metric, where)
        event = NonFiniteSeen(
            at=time.time_ns(),
            scope=where,
            metric=text(metric) if row is None else row.name,
            kind=text(kind),
            count=whole(count),
            env_ids=tuple(whole(env_id) for env_id in env_ids[:MAX_OFFENDERS]),
        )
        self._send(event)

    @guarded
    def early_stopped(
        self, *, update: int, epoch: int, kl_divergence: Numeric, target: Numeric, minibatches_skipped: int
    ) -> None:
        """PPO stopped an update before its last epoch because the policy had moved far enough."""
        at, index, when, skipped = time.time_ns(), whole(update), whole(epoch), whole(minibatches_skipped)

        def tell(told: dict[str, float]) -> None:
            self._send(EarlyStopped(at=at, update=index, epoch=when, minibatches_skipped=skipped, **told))

        self._numbers_when_there({"kl_divergence": kl_divergence, "target": target}, tell)

    @guarded
    def curriculum_changed(
        self,
        name: str,
        *,
        before: object = None,
        after: object = None,
        env_id: Numbers | None = None,
    ) -> None:
        """The task became another one, for all envs or for those named; `before` and `after` become text.

        Returns from before are then no measure of those after: a drop is no collapse.
        """
        event = CurriculumChanged(
            at=time.time_ns(),
            name=text(name),
            before=None if before is None else text(before),
            after=None if after is None else text(after),
            env_id=None if env_id is None else ids(env_id, common_rows(env_id)),
        )
        self._send(event)

    @guarded
    def checkpoint_saved(
        self,
        path: str | os.PathLike[str],
        *,
        update: int | None = None,
        size_bytes: int | None = None,
        duration_s: Numeric | None = None,
    ) -> None:
        """A checkpoint is on disk; the update is the newest one that was told unless given."""
        event = CheckpointSaved(
            at=time.time_ns(),
            path=text(os.fspath(path)),
            update=self.last_update if update is None else self._maybe("update", whole, update),
            size_bytes=self._maybe("size_bytes", whole, size_bytes),
            duration_s=self._maybe("duration_s", number, duration_s),
        )
        self._send(event)

    @guarded
    def log(
        self,
        /,
        message: str,
        *,
        severity: Severity | str = "info",
        subsystem: str = "trainer",
        env_id: int | None = None,
        slot: str | None = None,
        seed_id: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
        **fields: object,
    ) -> None:
        """A line of log with its fields, and the span it was written in, as hex."""
        event = LogLine(
            at=time.time_ns(),
            severity=severity_of(severity),
            message=text(message),
            subsystem=text(subsystem),
            env_id=self._maybe("env_id", whole, env_id),
            slot=maybe_text(slot),
            seed_id=maybe_text(seed_id),
            trace_id=maybe_text(trace_id),
            span_id=maybe_text(span_id),
            fields=text_fields(fields),
        )
        self._send(event)
