"""A run as its trainer reports it: numbers of updates, envs and slots, steps, phases, and the facts.

Rules: no method raises into training and none waits; what cannot be sent is counted and logged once. What
comes often has a short way (`overwatch.sdk.rings`), everything else and everything odd the long one. Must
not know OTLP; loads NumPy with the first column of many values.
"""

import contextlib
import os
import time
import traceback as tracebacks
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

from overwatch import events
from overwatch.catalog import Scope, Stage, find
from overwatch.catalog.phases import is_pause
from overwatch.sdk.channel import Channel, Values, guarded
from overwatch.sdk.ending import Ending, of_error
from overwatch.sdk.frames import Update
from overwatch.sdk.lifetime import EXIT_S, Lifetime, Report
from overwatch.sdk.link import Link
from overwatch.sdk.names import DIALECT, Dialect
from overwatch.sdk.packing import Tensor, is_tensor
from overwatch.sdk.rings.encoders import ColumnWriter, Latest, UpdateWriter
from overwatch.sdk.rings.records import first_ids
from overwatch.sdk.rollouts.columns import WordTables
from overwatch.sdk.steps import Steps, span_of
from overwatch.sdk.terminal import Terminal
from overwatch.sdk.tracing import Span, loop_of, opened
from overwatch.sdk.values import (
    Numbers,
    Numeric,
    RefusedError,
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

PAUSES: Final = 64
"""Names of pauses that are announced."""
MAX_OFFENDERS: Final = 16
"""Envs of a value that is not finite that are named."""


class Updater(Protocol):
    """What `run.updater` gives."""

    def __call__(self, *values: Numeric, update: int | None = None) -> None:
        """Numbers of one policy update, in the order of their names."""


class Run:
    """One training process's part of a run. Made by `overwatch.sdk.start`."""

    def __init__(
        self,
        run_id: str,
        link: Link | None,
        n_envs: int | None = None,
        dialect: Dialect = DIALECT,
        terminal: Terminal | None = None,
        *,
        words: WordTables | None = None,
    ) -> None:
        self.run_id = run_id
        """The run's id, shared by all of its processes."""
        self.is_on = link is not None  # Whether telemetry began; otherwise nothing is sent.
        self._channel = channel = Channel(run_id, link, dialect)
        self._lifetime = Lifetime(channel, terminal)
        self._steps = Steps(channel, n_envs, words)
        self._send, self._maybe = channel.send, channel.maybe
        self._n_envs = n_envs
        self._latest = Latest()
        self._announced: dict[str, float] = {}
        """When each pause of the loop was last announced, by its name."""
        self._columns_out: ColumnWriter | None = None
        self._waiting = channel.device.line
        # What comes most often is spared a call: these two are not looked up in this class.
        self.__dict__["beat"] = self._steps.beat
        if link is not None and link.rings is not None:
            self._columns_out = ColumnWriter(link.rings, partial(channel.names.full, scope=Scope.ENV))
            writer = UpdateWriter(
                link.rings, self._latest, channel.names.as_given, self._update_slowly, self._waiting
            )
            self.__dict__["update"] = writer.update

    @property
    def last_update(self) -> int | None:
        """Number of the newest update."""
        return self._latest.update

    @property
    def exporter_pid(self) -> int | None:
        """Id of the process that sends, while one lives."""
        link = self._channel.link
        return None if link is None else link.exporter_pid

    def update(self, /, *, update: int | None = None, **values: Numeric) -> None:
        """Numbers of one policy update, by their short names; an unknown name is a custom number.

        A value may be a tensor on any device: it is reported when the device has computed it.
        """
        self._update_slowly(update, values)

    def updater(self, *names: str) -> Updater:
        """A function for numbers of these names, in this order: `report(kl, entropy, update=n)`.

        Made once with `report = run.updater("kl_divergence", "entropy")`, it takes what `update` takes;
        values behind the last name are refused.
        """
        taken = [type(name) is str and name != "update" for name in names]
        is_plain = all(taken)

        def report(*values: Numeric, update: int | None = None) -> None:
            if is_plain:
                reported = dict(zip(names, values, strict=False))
            else:
                pairs = zip(names, values, taken, strict=False)
                reported = {name: value for name, value, is_taken in pairs if is_taken}
            if len(reported) < len(values):
                odd = f"{len(values) - len(reported)} values too many for names of an updater"
                self._channel.refuse("updater", RefusedError(odd))
            self.update(update=update, **reported)

        return report

    @guarded
    def _update_slowly(self, update: int | None, values: Mapping[str, Numeric]) -> None:
        """Any values, one by one; what cannot be taken is left out and counted."""
        at = time.time_ns()
        named: dict[str, Numeric | Tensor] = {}
        found = self._channel.policies(values, at)
        for name, full in found.items():
            value = values[name]
            try:
                named[full] = value if is_tensor(value) else number(value)
            except RefusedError as error:
                self._channel.refuse(name, error)
        index = self._latest.update = self._maybe("update", whole, update)
        scaled = self._channel.names.scaling(found)
        self._channel.numbers_when_there(
            named, lambda reported: self._send(Update(at=at, values=scaled(reported), index=index))
        )

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

        Without `env_id` the envs are 0, 1, 2, ... A column may be a tensor on any device.
        """
        out = self._columns_out
        if out is None or lane is not None or self._waiting or not out.write(env_id, step, columns):
            self._envs_slowly(env_id, step, columns, lane)

    @guarded
    def _envs_slowly(
        self, env_id: Numbers | None, step: int | None, columns: Mapping[str, Numbers], lane: Words = None
    ) -> None:
        rows = common_rows(*columns.values()) if env_id is None else common_rows(env_id)
        if env_id is None and rows == 1 and self._n_envs is not None:
            rows = self._n_envs
        keys = {"env_id": first_ids(rows) if env_id is None else ids(env_id, rows)}
        values = self._channel.columns(Scope.ENV, columns, rows)
        lanes = self._maybe("lane", partial(words, rows=rows), lane)
        if lanes is not None:
            values.columns["lane"] = lanes
        self._channel.measured(Scope.ENV, keys, values, self._maybe("step", whole, step))

    @guarded
    def rollout(
        self,
        /,
        *,
        first_step: int,
        steps: int,
        envs: int,
        at_first: float,
        at_last: float,
        env_first: int = 0,
        lane: str | None = None,
        copy: bool = True,
        **columns: object,
    ) -> None:
        """Many steps of many envs at once, as dense columns: tensors on any device, or NumPy arrays.

        Each column has the shape `steps` x `envs`; of one that is named `slot_…` each env has a value a slot,
        of `actions` one a head. `first_step` counts the steps of the vector env since the run began, from 1;
        the times are Unix seconds at which the first and the last step ended. Codes count into the tables of
        `start(words=...)`. Columns are copied and may change after the call. With `copy=False` those of the
        CPU are only lent, and may not change before the next call of `rollout` has returned.
        """
        self._steps.own_lent()
        span = span_of(first_step, steps, envs, env_first, (at_first, at_last), lane=lane)
        self._steps.rollout(span, columns, copy=bool(copy))

    def beat(self, step: int, duration_s: float) -> None:
        """Report that a step of the vector env was taken, the `step`-th since the run began, in `duration_s`.

        For every step of a long rollout: at most ten a second are sent.
        """
        self._steps.beat(step, duration_s)

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
        values = self._channel.columns(Scope.SLOT, {k: v for k, v in given.items() if v is not None}, rows)
        values.columns["overwatch.slot.stage"] = words(stage, rows)
        blueprints = self._maybe("blueprint", partial(words, rows=rows), blueprint)
        if blueprints is not None:
            values.columns["blueprint"] = blueprints
        self._channel.measured(Scope.SLOT, keys, values, self._maybe("step", whole, step))

    @guarded
    def episodes(
        self,
        *,
        env_id: Numbers,
        episode_return: Numbers,
        length: Numbers | None = None,
        metric: Numbers | None = None,
        step: int | None = None,
    ) -> None:
        """Episodes that ended at this step, one entry an env; `step` is its number, as of `envs`."""
        rows, at = common_rows(env_id, episode_return), time.time_ns()
        envs, number, values = ids(env_id, rows), self._maybe("step", whole, step), Values(rows)
        values.add("episode_return", episode_return)
        for name, column in (("length", length), ("metric", metric)):
            self._maybe(name, partial(values.add, name), column)

        def then(columns: dict[str, Any]) -> None:
            self._send(events.EpisodeEnded(at=at, env_id=envs, step=number, **columns))

        self._channel.when_there(values, then)

    @guarded
    def gauge(self, /, **values: Numeric) -> None:
        """Numbers that belong to no update, e.g. `loader_depth=3, loader_capacity=8`; any other names too."""
        by_scope: dict[Scope, dict[str, float]] = {}
        for name, value in values.items():
            try:
                full, scope = self._channel.names.gauge(name, self._channel.tallies.scope)
                by_scope.setdefault(scope, {})[full] = number(value)
            except RefusedError as error:
                self._channel.refuse(name, error)
        for scope, of_scope in by_scope.items():
            self._send(events.Measured(at=time.time_ns(), scope=scope, values=events.scalars(of_scope)))

    @guarded
    def count(self, name: str, /, n: Numeric = 1, **labels: object) -> None:
        """Add `n` to a counter: `run.count("refused", reason="too old")`.

        Summed in this process, by the values of its labels, and sent once a second and at the end. A name
        that no row knows is a custom counter. Beyond 64 label sets of a name the others are one, `other`.
        """
        self._channel.accept(name, self._channel.tallies.count, name, n, labels)

    @guarded
    def observe(self, name: str, value: Numeric, /, span: Span | None = None, **labels: object) -> None:
        """Add a value to a histogram: `run.observe("wait_time", 0.4)`; as `count` otherwise.

        Of the `span` in which it was observed, `/metrics` has an exemplar: from a slow one to its trace.
        """
        ref = None if span is None or span.is_void else span.ref
        self._channel.accept(name, self._channel.tallies.observe, name, value, labels, ref)

    @contextlib.contextmanager
    def phase(self, name: str, *, update: int | None = None) -> Iterator[None]:
        """Measure a phase of the training loop: `with run.phase("rollout"): ...`, or `@run.phase("update")`.

        Names that diagnosis understands are in `overwatch.catalog.phases.Phase`; any other is shown too. A
        phase belongs to the newest update that was reported, or to `update`: an actor gives that of its
        weights. One that is no step of the loop (an evaluation, a checkpoint, any name of your own) is
        announced at its beginning, so that it is no stall.
        """
        began = time.perf_counter()
        if isinstance(name, str) and is_pause(name):  # type: ignore[redundant-expr] # callers pass anything
            self._pause_began(name, began)
        try:
            yield
        finally:
            self._phase_ended(name, time.perf_counter() - began, update)

    @contextlib.contextmanager
    def span(self, name: str, parent: str | None = None) -> Iterator[Span]:
        """Measure a piece of work that is no phase of the training loop, as a span: no event, only a span.

        Below the span of a traceparent, or a trace of its own. `span.traceparent` goes to the process called
        within, `span.link(traceparent)` links another trace, `span.attributes` is sent with it. How many
        are made is the caller's to bound.
        """
        span, began = opened(parent), time.perf_counter()
        try:
            yield span
        finally:
            if not span.is_void:
                took = time.perf_counter() - began
                self._channel.attempt("span", lambda: self._send(span.ended(text(name), took)))

    @property
    def traceparent(self) -> str:
        """A header of W3C Trace Context for calls to others, of the turn of the loop that runs now.

        Empty until an update was reported with its number.
        """
        update = self.last_update
        return "" if update is None else loop_of(self.run_id, update).traceparent

    @guarded
    def _pause_began(self, name: str, now_s: float) -> None:
        """Announce a pause of the loop when it begins, each name at most once a second."""
        known = self._announced.get(name)
        if (known is None and len(self._announced) < PAUSES) or (known is not None and now_s - known >= 1.0):
            self._announced[name] = now_s
            self._send(events.PhaseBegan(at=time.time_ns(), phase=text(name)))

    @guarded
    def _phase_ended(self, name: str, duration_s: float, update: int | None) -> None:
        at, of = time.time_ns(), self.last_update if update is None else self._maybe("update", whole, update)
        self._send(events.PhaseEnded(at=at, phase=text(name), duration_s=duration_s, update=of))

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
        event = events.ActionTaken(
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
        event = events.SeedStageChanged(
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
        event = events.GateEvaluated(
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
    def fact(self, event: events.Event) -> None:
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
        message = f"{type(error).__name__}: {text(error)}" if isinstance(error, BaseException) else error
        if traceback is None and isinstance(error, BaseException) and error.__traceback__ is not None:
            traceback = "".join(tracebacks.format_exception(error))
        event = events.EnvCrashed(
            at=time.time_ns(),
            env_id=whole(env_id),
            error=text(message),
            step=self._maybe("step", whole, step),
            traceback=maybe_text(traceback),
        )
        self._send(event)

    @guarded
    def envs_removed(self, env_id: Numbers) -> None:
        """These envs are no more: nothing waits for them, and their ids may be given to new ones."""
        self._send(events.EnvsRemoved(at=time.time_ns(), env_id=ids(env_id, common_rows(env_id))))

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
        event = events.NonFiniteSeen(
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

        def then(numbers: dict[str, float]) -> None:
            self._send(
                events.EarlyStopped(at=at, update=index, epoch=when, minibatches_skipped=skipped, **numbers)
            )

        self._channel.numbers_when_there({"kl_divergence": kl_divergence, "target": target}, then)

    @guarded
    def curriculum_changed(
        self, name: str, *, before: object = None, after: object = None, env_id: Numbers | None = None
    ) -> None:
        """The task became another one, for all envs or for those named; `before` and `after` become text.

        Returns from before are then no measure of those after: a drop is no collapse.
        """
        event = events.CurriculumChanged(
            at=time.time_ns(),
            name=text(name),
            before=maybe_text(before),
            after=maybe_text(after),
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
        """A checkpoint is on disk; the update is the newest one that was reported unless given."""
        event = events.CheckpointSaved(
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
        severity: events.Severity | str = "info",
        subsystem: str = "trainer",
        env_id: int | None = None,
        slot: str | None = None,
        seed_id: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
        **fields: object,
    ) -> None:
        """A line of log with its fields, and the span it was written in, as hex."""
        event = events.LogLine(
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

    def close(
        self, timeout: float = EXIT_S, *, outcome: str | None = None, reason: str | None = None
    ) -> Report:
        """End the run: deliver what there is within `timeout` seconds, and report what became of it.

        `outcome` is `completed`, `failed` or `interrupted`. Without one the exception that is being handled
        decides, as it does where it leaves a `with run:`. A second call returns the first report.
        """
        ending = self._lifetime.ending() if outcome is None else Ending(outcome)
        return self._lifetime.close(timeout, ending if reason is None else Ending(ending.outcome, reason))

    def note_error(self, error: BaseException | None) -> None:
        """Note the exception that left a part of the loop: it ends the run unless a later call has `None`."""
        self._lifetime.presumed = of_error(error)

    def flush(self, timeout: float = EXIT_S) -> bool:
        """Wait until everything emitted so far has reached the collector, at most `timeout` seconds.

        True only when it did, and nothing of it was dropped meanwhile.
        """
        return self._lifetime.flush(max(timeout, 0.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifetime.close(EXIT_S, of_error(error))
