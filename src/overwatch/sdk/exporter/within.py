"""In which phase an event happened: episodes end while one collects, checkpoints are saved.

Rules: an event belongs to the phase of its kind that its time lies in. A phase whose span is not made yet
gets its numbers when the first event of it comes, and keeps them; that is done only where the process has
shown that it tells such phases, so that no event names a span that never comes. A checkpoint that is written
beside the training belongs to the phase in which it was begun. Must not know how spans are made or sent.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from overwatch.catalog.phases import Phase, parse_phase
from overwatch.events import CheckpointSaved, EpisodeEnded, PhaseBegan, PhaseEnded
from overwatch.sdk.tracing import SpanRef

Happened: TypeAlias = EpisodeEnded | CheckpointSaved
"""Events that name the span of their phase."""
_REMEMBERED: Final = 4
"""Ended phases of a kind: numbers of a device come an update or two later."""
_KINDS: Final = (Phase.ROLLOUT, Phase.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The numbers of a span that is to be made when its phase ends."""

    ref: SpanRef
    began: int | str | None
    """The turn that it is told of."""


@dataclass(frozen=True, slots=True)
class _Ended:
    begin: int
    end: int
    ref: SpanRef
    update: int | None


class Within:
    """Phases of one process, as far as events can belong to them."""

    def __init__(self) -> None:
        self._ended: dict[Phase, deque[_Ended]] = {kind: deque(maxlen=_REMEMBERED) for kind in _KINDS}
        self._reserved: dict[Phase, Reserved] = {}
        self._open: dict[Phase, int] = {}
        """When a phase that was announced began, by its kind."""

    def begin(self, event: PhaseBegan) -> None:
        """Note a phase that was announced."""
        kind = parse_phase(event.phase)
        if kind in _KINDS:
            self._open[kind] = event.at

    def take(self, event: PhaseEnded) -> Reserved | None:
        """The numbers that the span of a phase has already; `None` where it may have any."""
        kind = parse_phase(event.phase)
        return None if kind is None else self._reserved.pop(kind, None)

    def end(self, event: PhaseEnded, ref: SpanRef) -> None:
        """Note the span of a phase that ended."""
        kind = parse_phase(event.phase)
        if kind in _KINDS:
            self._open.pop(kind, None)
            begin = event.at - int(event.duration_s * 1e9)
            self._ended[kind].append(_Ended(begin, event.at, ref, event.update))

    def known(self, event: Happened) -> SpanRef | None:
        """The span of the phase that an event happened in, where its numbers are known."""
        kind = _kind(event)
        ended = self._ended[kind]
        for one in reversed(ended):
            if one.begin <= event.at <= one.end:
                return one.ref
        if kind in self._reserved:
            return self._reserved[kind].ref
        is_beside = kind is Phase.CHECKPOINT and kind not in self._open
        return ended[-1].ref if is_beside and ended else None

    def is_to_come(self, event: Happened) -> bool:
        """Whether the phase of an event is under way, and will be told."""
        kind = _kind(event)
        ended = self._ended[kind]
        return kind in self._open or (bool(ended) and event.at > ended[-1].end)

    def update(self, event: Happened) -> int | None:
        """The update that the newest phase of its kind was told of."""
        ended = self._ended[_kind(event)]
        return ended[-1].update if ended else None

    def reserve(self, event: Happened, reserved: Reserved) -> None:
        """Give the phase under way its numbers."""
        self._reserved[_kind(event)] = reserved


def _kind(event: Happened) -> Phase:
    return Phase.ROLLOUT if isinstance(event, EpisodeEnded) else Phase.CHECKPOINT
