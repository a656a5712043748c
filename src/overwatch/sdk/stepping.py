"""Steps, many at a time: `run.rollout` for whole rollouts, `run.beat` while one is collected.

Rules: the caller's thread copies columns and compares; cutting, checking codes and writing into the rings is
the drain thread's (`overwatch.sdk.device`). A rollout that finds no room waits for the reader, not for ever.
Must not know what becomes of a record.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from overwatch.catalog import Scope
from overwatch.catalog.presets import DEFAULT
from overwatch.catalog.run import STEPS
from overwatch.events import MAX_ROWS, EpisodeEnded, Measured, Severity, scalars
from overwatch.sdk.channel import guarded
from overwatch.sdk.facts import Facts
from overwatch.sdk.frames import Rolled
from overwatch.sdk.link import Link
from overwatch.sdk.rings.records import entry
from overwatch.sdk.rings.writer import Entry
from overwatch.sdk.rollouts.columns import KNOWN, SLOTS, Span
from overwatch.sdk.rollouts.given import Given, given, sound
from overwatch.sdk.terminal import Terminal
from overwatch.sdk.values import RefusedError, number, text, whole
from overwatch.sdk.words import WordTables

if TYPE_CHECKING:
    import numpy as np

    from overwatch.sdk.rollouts.cut import Cutter

BEAT_S: Final = 0.1
"""Least time between two beats that are sent."""
ROOM_S: Final = 5.0
"""How long a rollout waits for room in a ring whose reader takes nothing."""
EARLIEST_S: Final = 946_684_800
LATEST_S: Final = 4_102_444_799
"""Unix seconds that a collector takes for times: the years 2000 to 2099."""
_EPISODES: Final = ("terminated", "truncated", "episode_return", "episode_length")
"""What a rollout that is too large keeps besides the numbers of envs."""


class Stepping(Facts):
    """What a run emits of its steps."""

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
        super().__init__(run_id, link, n_envs, preset, terminal)
        self._words = words or WordTables()
        self._cutter: Cutter | None = None
        self._lent: Given | None = None
        """The newest rollout whose columns were lent."""
        self._beat_s = BEAT_S
        """Time in steps since the last beat that was sent."""
        self._beat_at = -math.inf
        self._beat_step: int | None = None
        """Of the newest beat that was sent."""

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
        if self._lent is not None:
            self._lent.own()
        span = _span(
            whole(first_step), whole(steps), whole(envs), whole(env_first), (at_first, at_last), lane=lane
        )
        taken = given(columns, span, self._words, self._refuse, copy=bool(copy))
        self._lent = None if copy else taken
        self._miss_parts(taken)
        if span.steps * span.envs * (len(self._words.slots) if _has_slots(taken) else 1) > MAX_ROWS:
            self._reduce(taken, span)
        self._device.offer_tables(taken.tensors, partial(self._arrived, span, taken), held=taken.nbytes)
        if self._beat_step is not None and self._n_envs is not None:
            self._send_beat(span.last_step, self._n_envs)

    def beat(self, step: int, duration_s: float) -> None:
        """Report that a step of the vector env was taken, the `step`-th since the run began, in `duration_s`.

        For every step of a long rollout: at most ten a second are sent.
        """
        if type(duration_s) is float and duration_s >= 0.0:
            self._beat_s += duration_s
            if self._beat_s < BEAT_S:
                return
        self._beat(step, duration_s)

    @guarded
    def _beat(self, step: int, duration_s: float) -> None:
        seconds = number(duration_s)
        if not seconds >= 0.0:
            raise RefusedError(f"a step took {seconds} s; give seconds from 0")
        if type(duration_s) is not float:
            self._beat_s += seconds
        if self._beat_s < BEAT_S:
            return
        self._beat_s = 0.0
        if self._n_envs is None:
            raise RefusedError("how many steps that are is not known; name the envs: start(n_envs=...)")
        now = time.monotonic()
        if now - self._beat_at >= BEAT_S:
            self._beat_at = now
            self._send_beat(whole(step), self._n_envs)

    def _send_beat(self, step: int, envs: int) -> None:
        """Send how many steps that are; never fewer than before."""
        if self._beat_step is not None and step <= self._beat_step:
            return
        self._beat_step = step
        values = scalars({STEPS.name: float(step * envs)})
        self._send(Measured(at=time.time_ns(), scope=Scope.RUN, values=values))

    def _miss_parts(self, taken: Given) -> None:
        """Refuse what is of no use without another column."""
        has_end = not {"terminated", "truncated"}.isdisjoint(taken.shapes)
        if has_end != ("episode_return" in taken.shapes):
            why = (
                "ends of episodes without what they returned"
                if has_end
                else "returns without ends of episodes"
            )
            self._refuse(
                "episode_return", RefusedError(f"{why}; give terminated, truncated and episode_return")
            )
        missing = {"gate_slot", "gate_passed"} - set(taken.shapes)
        if "gate" in taken.shapes and missing:
            self._refuse("gate", RefusedError(f"a gate needs {' and '.join(sorted(missing))} too"))
            taken.drop("gate")

    def _reduce(self, taken: Given, span: Span) -> None:
        """Keep of a rollout that is too large what its reduction needs, and report that once."""
        for name in tuple(taken.shapes):
            if name not in _EPISODES and (name in KNOWN or name.startswith(SLOTS)):
                taken.drop(name)
        taken.is_reduced = True
        self._log_once(
            f"rollout of {span.steps} steps of {span.envs} envs",
            f"has more than {MAX_ROWS} rows: only the means of each env and the ends of episodes are sent",
        )

    def _log_once(self, about: str, message: str) -> None:
        if "rollout is large" not in self._said:
            self._said.add("rollout is large")
            self.log(f"{about} {message}", severity=Severity.WARNING)

    def _arrived(self, span: Span, taken: Given, arrays: "dict[str, np.ndarray]") -> Callable[[], bool]:
        """Make records of what is there; what is returned writes them as far as there is room."""
        from overwatch.sdk.rollouts.cut import Cutter, reduced

        tables = {name: array.reshape(taken.shapes[name]) for name, array in (arrays | taken.give()).items()}
        tables = sound(tables, self._words, self._refuse)
        names = {name: full for name in tables if (full := self._number_name(name)) is not None}
        cutter = self._cutter = self._cutter or Cutter()
        if taken.is_reduced:
            cutter.forget(span)
            return _Writing(self._link, reduced(span, tables, names)).go_on
        return _Writing(self._link, cutter.records(span, tables, names)).go_on

    def _number_name(self, name: str) -> str | None:
        """The full name of a column of numbers; `None` for one that is none."""
        known = KNOWN.get(name)
        if known is not None and not known.is_number:
            return None
        try:
            if name.startswith(SLOTS):
                return self._full_name(name.removeprefix(SLOTS), Scope.SLOT)
            return self._full_name(name, Scope.ENV)
        except RefusedError as error:
            self._refuse(name, error)
            return None


class _Writing:
    """Records of one rollout on their way into the rings."""

    def __init__(self, link: Link | None, records: Iterator[Rolled | EpisodeEnded]) -> None:
        self._link, self._records = link, records
        self._next: tuple[Entry, bool] | None = None
        """The one that found no room, and whether it is a fact."""
        self._waits_since: float | None = None

    def go_on(self) -> bool:
        """Write as far as there is room; whether nothing is left."""
        link = self._link
        while link is not None and (self._next is not None or self._take()):
            if self._next is None:
                continue
            record, is_fact = self._next
            if not link.offer(record, is_fact=is_fact):
                now = time.monotonic()
                self._waits_since = now if self._waits_since is None else self._waits_since
                if now - self._waits_since < ROOM_S:
                    return False
                link.count_drop("ring_full")
            else:
                self._waits_since = None
            self._next = None
        return True

    def _take(self) -> bool:
        """The next record, to be offered or sent; whether there was one."""
        found = next(self._records, None)
        if found is None:
            return False
        is_fact = not isinstance(found, Rolled) or found.is_fact
        self._next = entry(found), is_fact
        return True


def _has_slots(taken: Given) -> bool:
    return any(name.startswith(SLOTS) for name in taken.shapes)


def _span(
    first_step: int, steps: int, envs: int, env_first: int, times: tuple[float, float], *, lane: str | None
) -> Span:
    """Which steps and envs; raises `RefusedError` with the fix."""
    if steps < 1 or envs < 1 or first_step < 1 or env_first < 0:
        counts = f"first_step={first_step}, steps={steps}, envs={envs}, env_first={env_first}"
        raise RefusedError(f"{counts}: counts are from 1, env_first from 0")
    first, last = (number(at) for at in times)
    if not EARLIEST_S <= first <= last <= LATEST_S:
        raise RefusedError(f"at_first={first}, at_last={last}: give Unix seconds, e.g. time.time(), in order")
    return Span(
        first_step,
        steps,
        env_first,
        envs,
        int(first * 1e9),
        int(last * 1e9),
        None if lane is None else text(lane),
    )
