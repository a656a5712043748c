"""Steps, many at a time: whole rollouts, and beats while one is collected.

Rules: the caller's thread copies columns and compares; cutting, checking codes and writing into the rings is
the drain thread's (`overwatch.sdk.device`). A rollout that finds no room waits for the reader, not for ever.
Must not know what becomes of a record.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from overwatch.catalog import Scope
from overwatch.catalog.run import STEPS
from overwatch.events import MAX_ROWS, EpisodeEnded, LogLine, Measured, Severity, scalars
from overwatch.sdk.channel import Channel
from overwatch.sdk.frames import Rolled
from overwatch.sdk.link import Link
from overwatch.sdk.packing import Shape
from overwatch.sdk.rings.records import entry, is_fact
from overwatch.sdk.rollouts.columns import KNOWN, SLOTS, Span, WordTables
from overwatch.sdk.rollouts.given import Given, given, sound
from overwatch.sdk.values import RefusedError, number, text, whole

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


class Steps:
    """What a run emits of its steps."""

    def __init__(self, channel: Channel, n_envs: int | None, words: WordTables | None) -> None:
        self._channel, self._n_envs = channel, n_envs
        self._words = words or WordTables()
        self._cutter: Cutter | None = None
        self._lent: Given | None = None
        """The newest rollout whose columns were lent."""
        self._beat_s = BEAT_S
        """Time in steps since the last beat that was sent."""
        self._beat_at = -math.inf
        self._beat_step: int | None = None
        """Of the newest beat that was sent."""
        self._is_large = False
        """A rollout was too large, which is logged once."""

    def own_lent(self) -> None:
        """Copy what the newest rollout was lent: from now on it may change."""
        if self._lent is not None:
            self._lent.own()

    def rollout(self, span: Span, columns: Mapping[str, object], *, copy: bool) -> None:
        """Take the columns of a rollout; without `copy` they are lent until `own_lent`."""
        taken = given(columns, span, self._words, self._channel.refuse, copy=copy)
        self._lent = None if copy else taken
        self._miss_parts(taken)
        slots = len(self._words.slots) if any(name.startswith(SLOTS) for name in taken.shapes) else 1
        if span.steps * span.envs * slots > MAX_ROWS:
            self._reduce(taken, span)
        arrived = partial(self._arrived, span, taken)
        self._channel.device.offer_arrays(taken.tensors, Shape.TABLES, arrived, held=taken.nbytes)
        if self._beat_step is not None and self._n_envs is not None:
            self._send_beat(span.last_step, self._n_envs)

    def beat(self, step: int, duration_s: float) -> None:
        """Take a step; what most calls do is compare."""
        if type(duration_s) is float and duration_s >= 0.0:
            self._beat_s += duration_s
            if self._beat_s < BEAT_S:
                return
        self._channel.attempt("beat", self._beat, step, duration_s)

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
        self._channel.send(Measured(at=time.time_ns(), scope=Scope.RUN, values=values))

    def _miss_parts(self, taken: Given) -> None:
        """Refuse what is of no use without another column."""
        has_end = not {"terminated", "truncated"}.isdisjoint(taken.shapes)
        if has_end != ("episode_return" in taken.shapes):
            why = "returns without ends of episodes"
            if has_end:
                why = "ends of episodes without what they returned"
            fix = "give terminated, truncated and episode_return"
            self._channel.refuse("episode_return", RefusedError(f"{why}; {fix}"))
        missing = {"gate_slot", "gate_passed"} - set(taken.shapes)
        if "gate" in taken.shapes and missing:
            self._channel.refuse("gate", RefusedError(f"a gate needs {' and '.join(sorted(missing))} too"))
            taken.drop("gate")

    def _reduce(self, taken: Given, span: Span) -> None:
        """Keep of a rollout that is too large what its reduction needs, and report that once."""
        for name in tuple(taken.shapes):
            if name not in _EPISODES and (name in KNOWN or name.startswith(SLOTS)):
                taken.drop(name)
        taken.is_reduced = True
        if not self._is_large:
            self._is_large = True
            message = (
                f"rollout of {span.steps} steps of {span.envs} envs has more than {MAX_ROWS} rows: only the "
                "means of each env and the ends of episodes are sent"
            )
            self._channel.send(LogLine(at=time.time_ns(), severity=Severity.WARNING, message=message))

    def _arrived(self, span: Span, taken: Given, arrays: "dict[str, np.ndarray]") -> Callable[[], bool]:
        """Make records of what is there; what is returned writes them as far as there is room."""
        from overwatch.sdk.rollouts.cut import Cutter, reduced

        tables = {name: array.reshape(taken.shapes[name]) for name, array in (arrays | taken.give()).items()}
        tables = sound(tables, self._words, self._channel.refuse)
        names = {name: full for name in tables if (full := self._number_name(name)) is not None}
        cutter = self._cutter = self._cutter or Cutter()
        if taken.is_reduced:
            cutter.forget(span)
        records = (reduced if taken.is_reduced else cutter.records)(span, tables, names)
        return _Writing(self._channel.link, records).go_on

    def _number_name(self, name: str) -> str | None:
        """The full name of a column of numbers; `None` for one that is none."""
        known = KNOWN.get(name)
        if known is not None and not known.is_number:
            return None
        scope = Scope.SLOT if name.startswith(SLOTS) else Scope.ENV
        return self._channel.accept(name, self._channel.names.full, name.removeprefix(SLOTS), scope)


class _Writing:
    """Records of one rollout on their way into the rings."""

    def __init__(self, link: Link | None, records: Iterator[Rolled | EpisodeEnded]) -> None:
        self._link = link
        self._records = ((entry(one), is_fact(one)) for one in records)
        self._next = next(self._records, None)
        self._waits_since: float | None = None

    def go_on(self) -> bool:
        """Write as far as there is room; whether nothing is left."""
        while self._link is not None and self._next is not None:
            record, is_fact = self._next
            if self._link.offer(record, is_fact=is_fact):
                self._waits_since = None
            else:
                now = time.monotonic()
                self._waits_since = now if self._waits_since is None else self._waits_since
                if now - self._waits_since < ROOM_S:
                    return False
                self._link.count_drop("ring_full")
            self._next = next(self._records, None)
        return True


def span_of(
    first_step: object, steps: object, envs: object, env_first: object, times: tuple[float, float], *,
    lane: str | None,
) -> Span:  # fmt: skip
    """Which steps and envs; raises `RefusedError` with the fix."""
    counts = [whole(one) for one in (first_step, steps, envs, env_first)]
    if min(counts[:3]) < 1 or counts[3] < 0:
        shown = "first_step={}, steps={}, envs={}, env_first={}".format(*counts)
        raise RefusedError(f"{shown}: counts are from 1, env_first from 0")
    first, last = (number(at) for at in times)
    if not EARLIEST_S <= first <= last <= LATEST_S:
        raise RefusedError(f"at_first={first}, at_last={last}: give Unix seconds, e.g. time.time(), in order")
    return Span(
        first_step=counts[0], steps=counts[1], envs=counts[2], env_first=counts[3],
        at_first=int(first * 1e9), at_last=int(last * 1e9), lane=None if lane is None else text(lane),
    )  # fmt: skip
