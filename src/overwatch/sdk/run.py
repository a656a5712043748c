"""A run as its trainer speaks of it: numbers of updates, envs and slots, phases, and the facts.

Rules: no method raises into training and none waits; what cannot be sent is counted and said once. What
comes often has a short way (`overwatch.sdk.rings`), everything else and everything odd the long one. Must
not know OTLP; loads NumPy with the first column of many values.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, Protocol

from overwatch.catalog import Kind, Metric, Scope, find
from overwatch.catalog.phases import is_pause
from overwatch.catalog.presets import DEFAULT
from overwatch.catalog.tallies import SERVICES
from overwatch.events import Column, EpisodeEnded, Measured, PhaseBegan, PhaseEnded, scalars
from overwatch.sdk.channel import Values, guarded
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.frames import Update as Told
from overwatch.sdk.link import Link
from overwatch.sdk.packing import Tensor, is_tensor
from overwatch.sdk.rings.columns import ColumnWriter
from overwatch.sdk.rings.updates import UpdateWriter
from overwatch.sdk.stepping import Stepping
from overwatch.sdk.terminal import Terminal
from overwatch.sdk.tracing import Span, loop_of, opened
from overwatch.sdk.values import (
    Numbers,
    Numeric,
    RefusedError,
    Words,
    common_rows,
    ids,
    number,
    text,
    whole,
    words,
)
from overwatch.sdk.words import WordTables

PAUSES: Final = 64
"""Names of pauses that are announced."""


class Updater(Protocol):
    """What `run.updater` gives."""

    def __call__(self, *values: Numeric, update: int | None = None) -> None:
        """Numbers of one policy update, in the order of their names."""


class Run(Stepping):
    """One training process's part of a run. Made by `overwatch.sdk.start`."""

    def __init__(
        self,
        run_id: str,
        link: Link | None,
        n_envs: int | None = None,
        preset: str = DEFAULT,
        terminal: Terminal | None = None,
        *,
        words: WordTables | None = None,
    ) -> None:
        super().__init__(run_id, link, n_envs, preset, terminal, words=words)
        self._announced: dict[str, float] = {}
        """When each pause of the loop was last announced, by its name."""
        self._columns_out: ColumnWriter | None = None
        self._waiting = self._device.line
        if link is not None and link.rings is not None:
            self._columns_out = ColumnWriter(link.rings, self._env_name)
            writer = UpdateWriter(
                link.rings, self._latest, self._policy_name, self._update_slowly, self._waiting
            )
            # What comes most often is spared a call: `update` is the writer's own, until the run is over.
            self.__dict__["update"] = writer.update

    def update(self, /, *, update: int | None = None, **values: Numeric) -> None:
        """Numbers of one policy update, by their short names; an unknown name is a custom number.

        A value may be a tensor on any device: it is told when the device has computed it.
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
                told = dict(zip(names, values, strict=False))
            else:
                pairs = zip(names, values, taken, strict=False)
                told = {name: value for name, value, is_taken in pairs if is_taken}
            if len(told) < len(values):
                odd = f"{len(values) - len(told)} values too many for names of an updater"
                self._refuse("updater", RefusedError(odd))
            self.update(update=update, **told)

        return report

    def _shut(self) -> None:
        self._columns_out = None
        self.__dict__.pop("update", None)

    @guarded
    def _update_slowly(self, update: int | None, values: Mapping[str, Numeric]) -> None:
        """Any values, one by one; what cannot be taken is left out and counted."""
        at = time.time_ns()
        named: dict[str, Numeric | Tensor] = {}
        for name, full in self._policy_names(values).items():
            value = values[name]
            try:
                named[full] = value if is_tensor(value) else number(value)
            except RefusedError as error:
                self._refuse(name, error)
        index = self._latest.update = self._maybe("update", whole, update)
        self._numbers_when_there(named, lambda told: self._send(Told(at=at, values=told, index=index)))

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
        rows = self._rows(env_id, columns)
        keys = {"env_id": self._first_envs(rows) if env_id is None else ids(env_id, rows)}
        values = self._columns(Scope.ENV, columns, rows)
        lanes = self._maybe("lane", partial(words, rows=rows), lane)
        if lanes is not None:
            values.columns["lane"] = lanes
        self._measured(Scope.ENV, keys, values, self._maybe("step", whole, step))

    def _env_name(self, name: str) -> str:
        return self._full_name(name, Scope.ENV)

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
        values.columns["overwatch.slot.stage"] = words(stage, rows)
        blueprints = self._maybe("blueprint", partial(words, rows=rows), blueprint)
        if blueprints is not None:
            values.columns["blueprint"] = blueprints
        self._measured(Scope.SLOT, keys, values, self._maybe("step", whole, step))

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
        rows, at = common_rows(env_id, episode_return), time.time_ns()
        envs = ids(env_id, rows)
        values = Values(rows)
        values.add("episode_return", episode_return)
        for name, column in (("length", length), ("metric", metric)):
            self._maybe(name, partial(values.add, name), column)

        def tell(columns: dict[str, Column]) -> None:
            self._send(
                EpisodeEnded(
                    at=at,
                    env_id=envs,
                    episode_return=columns["episode_return"],
                    length=columns.get("length"),
                    metric=columns.get("metric"),
                )
            )

        self._when_there(values, tell)

    @guarded
    def gauge(self, /, **values: Numeric) -> None:
        """Numbers that belong to no update, e.g. `loader_depth=3, loader_capacity=8`; any other names too."""
        by_scope: dict[Scope, dict[str, float]] = {}
        for name, value in values.items():
            try:
                row = self._gauge_row(name)
                scope = self._tallies.scope if row is None else row.scope
                full = self._custom_name(name) if row is None else row.name
                by_scope.setdefault(scope, {})[full] = number(value)
            except RefusedError as error:
                self._refuse(name, error)
        for scope, of_scope in by_scope.items():
            self._send(Measured(at=time.time_ns(), scope=scope, values=scalars(of_scope)))

    def _gauge_row(self, name: str) -> Metric | None:
        """The row of a gauge: of the host, or of the service that this process is."""
        row = find(name, Scope.HOST) or find(name, self._tallies.scope)
        is_taken = row is not None and (row.scope is Scope.HOST or row.scope in SERVICES)
        return row if row is not None and is_taken and row.kind is Kind.GAUGE else None

    @guarded
    def count(self, name: str, /, n: Numeric = 1, **labels: object) -> None:
        """Add `n` to a counter: `run.count("refused", reason="too old")`.

        Summed in this process, by the values of its labels, and sent once a second and at the end. A name
        that no row knows is a custom counter. Beyond 64 label sets of a name the others are one, `other`.
        """
        try:
            self._tallies.count(name, n, labels)
        except RefusedError as error:
            self._refuse(name, error)

    @guarded
    def observe(self, name: str, value: Numeric, /, span: Span | None = None, **labels: object) -> None:
        """Add a value to a histogram: `run.observe("wait_time", 0.4)`; as `count` otherwise.

        Of the `span` in which it was observed, `/metrics` has an exemplar: from a slow one to its trace.
        """
        try:
            ref = None if span is None or span.is_void else span.ref
            self._tallies.observe(name, value, labels, ref)
        except RefusedError as error:
            self._refuse(name, error)

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
                self._span_ended(name, span, time.perf_counter() - began)

    @property
    def traceparent(self) -> str:
        """A header of W3C Trace Context for calls to others, of the turn of the loop that runs now.

        Empty until an update was told by its number.
        """
        update = self.last_update
        return "" if update is None else loop_of(self.run_id, update).traceparent

    @guarded
    def _pause_began(self, name: str, now_s: float) -> None:
        """Announce a pause of the loop when it begins, each name at most once a second."""
        known = self._announced.get(name)
        if (known is None and len(self._announced) < PAUSES) or (known is not None and now_s - known >= 1.0):
            self._announced[name] = now_s
            self._send(PhaseBegan(at=time.time_ns(), phase=text(name)))

    @guarded
    def _phase_ended(self, name: str, duration_s: float, update: int | None) -> None:
        at, of = time.time_ns(), self.last_update if update is None else self._maybe("update", whole, update)
        self._send(PhaseEnded(at=at, phase=text(name), duration_s=duration_s, update=of))

    @guarded
    def _span_ended(self, name: str, span: Span, duration_s: float) -> None:
        self._send(
            SpanEnded(
                at=time.time_ns(),
                name=text(name),
                duration_s=duration_s,
                traceparent=span.traceparent,
                parent=None if span.parent is None else span.parent.traceparent,
                links=tuple(link.traceparent for link in span.links),
                attributes=span.attributes,
            )
        )
