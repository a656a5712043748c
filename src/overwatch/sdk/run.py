"""A run as its trainer speaks of it: every method is one kind of event.

Rules: no method raises into training and none waits; what cannot be sent is counted and said once. Must not
know OTLP; loads NumPy with the first column of many values.
"""

import contextlib
import os
import time
import traceback as tracebacks
from collections.abc import Iterator, Sequence
from typing import Final

from overwatch.catalog import Scope, Stage, find
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EpisodeEnded,
    GateEvaluated,
    LogLine,
    NonFiniteSeen,
    PhaseEnded,
    SeedStageChanged,
    Severity,
    scalars,
)
from overwatch.sdk.channel import Channel, guarded
from overwatch.sdk.frames import Update
from overwatch.sdk.values import (
    Numbers,
    Numeric,
    RefusedError,
    Words,
    common_rows,
    ids,
    maybe_text,
    number,
    numbers,
    severity_of,
    stage_of,
    text,
    whole,
    words,
)
from overwatch.sdk.values import fields as text_fields

MAX_OFFENDERS: Final = 16


class Run(Channel):
    """One training process's part of a run. Made by `overwatch.sdk.start`."""

    @guarded
    def update(self, /, *, update: int | None = None, **values: Numeric) -> None:
        """Numbers of one policy update, by their short names; an unknown name is a custom number."""
        named: dict[str, float] = {}
        for name, value in values.items():
            try:
                known = self._names.get(name) or self._policy_name(name)
                named[known] = value if type(value) is float else number(value)
            except RefusedError as error:
                self._refuse(name, error)
        self._update = None if update is None else whole(update)
        self._send(Update(at=time.time_ns(), values=named, index=self._update))

    @guarded
    def envs(
        self,
        /,
        *,
        env_id: Numbers | None = None,
        step: int | None = None,
        lane: Words = None,
        **columns: Numbers,
    ) -> None:
        """Numbers of one env step: for each name one value an env, or one for all of them.

        Without `env_id` the envs are 0, 1, 2, ...
        """
        rows = self._rows(env_id, columns)
        keys = {"env_id": self._first_envs(rows) if env_id is None else ids(env_id, rows)}
        values = self._columns(Scope.ENV, columns, rows)
        if lane is not None:
            values["lane"] = words(lane, rows)
        index = None if step is None else whole(step)
        self._measured(Scope.ENV, keys, values, index)

    @guarded
    def slots(
        self,
        /,
        *,
        env_id: Numbers,
        slot: Words,
        stage: Words,
        blueprint: Words = None,
        alpha: Numbers | None = None,
        age: Numbers | None = None,
        step: int | None = None,
        **columns: Numbers,
    ) -> None:
        """The state of slots: one entry a slot row; `slot`, `stage` and `blueprint` are words."""
        rows = common_rows(env_id, slot, stage, blueprint, alpha, age)
        keys = {"env_id": ids(env_id, rows), "slot": words(slot, rows)}
        given = {"alpha": alpha, "age": age, **columns}
        values = self._columns(Scope.SLOT, {k: v for k, v in given.items() if v is not None}, rows)
        values["overwatch.slot.stage"] = words(stage, rows)
        if blueprint is not None:
            values["blueprint"] = words(blueprint, rows)
        self._measured(Scope.SLOT, keys, values, None if step is None else whole(step))

    @guarded
    def episodes(
        self,
        *,
        env_id: Numbers,
        episode_return: Numbers,
        length: Numbers | None = None,
        metric: Numbers | None = None,
    ) -> None:
        """Episodes that ended at this step, one entry an env."""
        rows = common_rows(env_id, episode_return)
        event = EpisodeEnded(
            at=time.time_ns(),
            env_id=ids(env_id, rows),
            episode_return=numbers(episode_return, rows),
            length=None if length is None else numbers(length, rows),
            metric=None if metric is None else numbers(metric, rows),
        )
        self._send(event)

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
            slot=None if slot is None else words(slot, rows),
            blueprint=None if blueprint is None else words(blueprint, rows),
            step=None if step is None else whole(step),
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
            alpha=None if alpha is None else number(alpha),
            age=None if age is None else whole(age),
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
            score=None if score is None else number(score),
            checks_passed=tuple(text(check) for check in checks_passed),
            checks_failed=tuple(text(check) for check in checks_failed),
            message=maybe_text(message),
        )
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
        said = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        if traceback is None and isinstance(error, BaseException) and error.__traceback__ is not None:
            traceback = "".join(tracebacks.format_exception(error))
        event = EnvCrashed(
            at=time.time_ns(),
            env_id=whole(env_id),
            error=text(said),
            step=None if step is None else whole(step),
            traceback=maybe_text(traceback),
        )
        self._send(event)

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
        event = EarlyStopped(
            at=time.time_ns(),
            update=whole(update),
            epoch=whole(epoch),
            kl_divergence=number(kl_divergence),
            target=number(target),
            minibatches_skipped=whole(minibatches_skipped),
        )
        self._send(event)

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
            update=self._update if update is None else whole(update),
            size_bytes=None if size_bytes is None else whole(size_bytes),
            duration_s=None if duration_s is None else number(duration_s),
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
            env_id=None if env_id is None else whole(env_id),
            slot=maybe_text(slot),
            seed_id=maybe_text(seed_id),
            trace_id=maybe_text(trace_id),
            span_id=maybe_text(span_id),
            fields=text_fields(fields),
        )
        self._send(event)

    @guarded
    def gauge(self, /, **values: Numeric) -> None:
        """Numbers that belong to no update, e.g. `loader_depth=3, loader_capacity=8`; any other names too."""
        of_host: dict[str, float] = {}
        custom: dict[str, float] = {}
        for name, value in values.items():
            try:
                row = find(name, Scope.HOST)
                if row is None:
                    custom[self._custom_name(name)] = number(value)
                else:
                    of_host[row.name] = number(value)
            except RefusedError as error:
                self._refuse(name, error)
        for scope, told in ((Scope.HOST, of_host), (Scope.RUN, custom)):
            if told:
                self._measured(scope, {}, scalars(told), None)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase of the training loop: `with run.phase("rollout"): ...`, or `@run.phase("update")`.

        Names that diagnosis understands are in `overwatch.catalog.phases.Phase`; any other is shown too.
        """
        began = time.perf_counter()
        try:
            yield
        finally:
            self._phase_ended(name, time.perf_counter() - began)

    @guarded
    def _phase_ended(self, name: str, duration_s: float) -> None:
        event = PhaseEnded(at=time.time_ns(), phase=text(name), duration_s=duration_s, update=self._update)
        self._send(event)
