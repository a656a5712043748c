"""One real training as it reached a collector: every event with its receive stamp, and what is known of it.

Owns the file's form: MessagePack, zstandard; numbers are rounded to 15 significant bits (ends of what was
conflated to 10), times to 0.1 ms.
What the exporter sends of envs ten times a second is folded to once a second, of more than 16 envs the less
often, as a slower window folds it. What a world that grows networks sends of single seeds is left out.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import zstandard

from overwatch.catalog import Scope
from overwatch.events import (
    ActionTaken,
    Column,
    Conflated,
    EpisodeEnded,
    Event,
    GateEvaluated,
    Measured,
    PhaseEnded,
    SeedStageChanged,
)

FOLDER: Final = Path(__file__).parents[1] / "runs"
HALVES: Final = ("open", "sealed")
_GRAIN_NS: Final = 100_000


class Case(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What is trained; everything else follows from it."""

    kind: str
    algorithm: str
    world: str
    seed: str

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.kind}.{self.algorithm}.{self.world}.{self.seed}"


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """What a collector received at once."""

    after_ns: int
    """Receive stamp, since the first."""
    rank: int
    events: tuple[Event, ...]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One training."""

    case: Case
    start_ns: int
    settings: dict[str, str]
    """What was drawn."""
    began_ns: int | None
    """When the fault began, since the first stamp; absent of a healthy run."""
    returns: tuple[tuple[float, float], ...]
    """True return of the training's episodes over time, in seconds: means of equally many episodes."""
    error: str | None
    """What ended the training, where it raised."""
    cpu_s: float
    moments: tuple[Moment, ...]

    @property
    def share(self) -> tuple[float, float]:
        """Best and last return, 0 at the floor and 1 at the known one."""
        floor, known = WORLDS[self.case.world]
        levels = [value for _, value in self.returns] or [floor]
        best, last = max(levels), float(np.mean(levels[-max(1, len(levels) // 10) :]))
        return (best - floor) / (known - floor), (last - floor) / (known - floor)

    @property
    def outcome(self) -> str:
        """By the return, `learned`, `fell` or `did not learn`; `failed` where an exception ended it."""
        best, last = self.share
        if self.error is not None:
            return "failed"
        if last >= LEARNED:
            return "learned"
        return "fell" if best >= LEARNED and last < best / 2 else "did not learn"


LEARNED: Final = 0.5
"""Share of the way from the floor to the known return."""
WORLDS: Final[dict[str, tuple[float, float]]] = {
    "cartpole": (22, 500),
    "acrobot": (-499, -85),
    "mountaincar": (-200, -110),
    "pendulum": (-1230, -180),
    "lunarlander": (-190, 100),
    "grid": (0.02, 1),
    "bricks": (0.5, 8),
    "point": (-75, -11),
    "goodhart": (-1.2, 8),
    "morphogenesis": (0.28, 0.7),
    "digits": (0.2, 0.95),
    "letters": (0.1, 0.9),
}
"""Mean return of a policy that acts at random, and of one that learned the world."""


def write(series: Series, path: Path) -> None:
    """Write it whole or not at all."""
    moments = tuple(
        Moment(
            _grain(moment.after_ns),
            moment.rank,
            tuple(_rounded(event) for event in moment.events),
        )
        for moment in _slower(series.moments)
    )
    data = msgspec.msgpack.encode(msgspec.structs.replace(series, moments=moments))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(zstandard.ZstdCompressor(level=19).compress(data))
    part.replace(path)


def read(path: Path) -> Series:
    """The training in a file."""
    return msgspec.msgpack.decode(zstandard.decompress(path.read_bytes()), type=Series)


def kept(half: str) -> Iterator[Path]:
    """Files of a half, by name."""
    yield from sorted((FOLDER / half).glob("*.bin"))


def _grain(ns: int) -> int:
    return ns // _GRAIN_NS * _GRAIN_NS


def _rounded(event: Event) -> Event:
    changes: dict[str, object] = {"at": _grain(event.at)}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Column):
            changes[name] = _short(value)
        elif isinstance(value, float):
            changes[name] = _bits(np.array([value])).astype(float).item()
        elif name in ("values", "keys"):
            changes[name] = {key: _short(column) for key, column in value.items()}
        elif isinstance(value, Conflated):
            ends = {
                end: {key: _short(one, 9) for key, one in getattr(value, end).items()}
                for end in ("low", "high")
            }
            changes[name] = msgspec.structs.replace(value, **ends)
        elif name in ("trace_id", "span_id"):
            changes[name] = None
    return msgspec.structs.replace(event, **changes)


def _short(column: Column, bits: int = 14) -> Column:
    """The same in fewer bytes."""
    array = column.array()
    if column.labels is not None or not array.size:
        return column
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            short = _bits(array, bits)
        finite = np.isfinite(array)
        return Column.of(short) if np.array_equal(finite, np.isfinite(short)) else column
    for kind in ("<i2", "<i4"):
        if np.array_equal(array.astype(kind), array):
            return Column.of(array.astype(kind))
    return column


def _bits(array: np.ndarray, bits: int = 14) -> np.ndarray:
    """Single precision with so many bits of the mantissa; a number that is not finite stays."""
    short, rest = np.ascontiguousarray(array, dtype=np.float32), 23 - bits
    mask = np.uint32(0xFFFFFFFF << rest & 0xFFFFFFFF)
    rounded = ((short.view(np.uint32) + np.uint32(1 << (rest - 1))) & mask).view(np.float32)
    return np.where(np.isfinite(rounded), rounded, short)


def _slower(moments: tuple[Moment, ...]) -> Iterator[Moment]:
    """Rows and actions of envs less often; of many ends of a phase in one request one."""
    waiting: dict[tuple[int, str], list[Event]] = {}
    due, rows = 0, 16
    for moment in moments:
        events = list[Event]()
        for event in moment.events:
            if _is_of_seed(event):
                continue
            if isinstance(event, ActionTaken) or (isinstance(event, Measured) and event.scope is Scope.ENV):
                waiting.setdefault((moment.rank, _subject(event)), []).append(event)
                ids = event.env_id if isinstance(event, ActionTaken) else event.keys["env_id"]
                rows = max(rows, len(ids))
            else:
                events.append(event)
        if moment.after_ns >= due or moment is moments[-1]:
            events[:0] = [_folded(held) for (rank, _), held in waiting.items() if rank == moment.rank]
            waiting = {key: held for key, held in waiting.items() if key[0] != moment.rank}
            due = moment.after_ns + rows * 62_500_000
        if events:
            yield Moment(moment.after_ns, moment.rank, tuple(_episodes(_phases(events))))


def _is_of_seed(event: Event) -> bool:
    is_slot = isinstance(event, Measured) and event.scope is Scope.SLOT
    return is_slot or isinstance(event, SeedStageChanged | GateEvaluated)


def _subject(event: Event) -> str:
    return "actions" if isinstance(event, ActionTaken) else repr(sorted(event.values))


def _phases(events: list[Event]) -> Iterator[Event]:
    """The events, of more than two ends of a phase one with all their seconds."""
    ends: dict[str, list[PhaseEnded]] = {}
    for event in events:
        if isinstance(event, PhaseEnded):
            ends.setdefault(event.phase, []).append(event)
    for event in events:
        same = ends.get(event.phase, []) if isinstance(event, PhaseEnded) else []
        if len(same) <= 2:
            yield event
        elif event is same[-1]:
            yield msgspec.structs.replace(event, duration_s=sum(one.duration_s for one in same))


def _episodes(events: Iterable[Event]) -> Iterator[Event]:
    """The events, episodes of one request together as long as none is of the same env again."""
    held: list[EpisodeEnded] = []
    for event in events:
        if isinstance(event, EpisodeEnded) and (not held or _goes_with(held, event)):
            held.append(event)
            continue
        if held:
            yield _together(held)
            held = []
        if isinstance(event, EpisodeEnded):
            held = [event]
        else:
            yield event
    if held:
        yield _together(held)


def _goes_with(held: list[EpisodeEnded], event: EpisodeEnded) -> bool:
    envs = {env for one in held for env in one.env_id.array().tolist()}
    is_alike = all((getattr(held[0], name) is None) == (getattr(event, name) is None) for name in _EPISODE)
    return is_alike and envs.isdisjoint(event.env_id.array().tolist())


def _together(held: list[EpisodeEnded]) -> EpisodeEnded:
    if len(held) == 1:
        return held[0]
    columns = {
        name: Column.of(np.concatenate([getattr(one, name).array() for one in held]))
        for name in _EPISODE
        if getattr(held[0], name) is not None
    }
    return msgspec.structs.replace(held[-1], **columns)


_EPISODE: Final = (
    "env_id", "episode_return", "length", "metric", "best", "best_step", "growth_ratio", "fossils", "prunes",
)  # fmt: skip


def _folded(held: list[Event]) -> Event:
    newest, first = held[-1], held[0]
    if not isinstance(newest, Measured) or not isinstance(first, Measured):
        return newest
    count = sum(one.conflated.n if one.conflated else 1 for one in held if isinstance(one, Measured))
    if count == 1:
        return newest
    index = first.index if first.conflated is None else first.conflated.first
    return msgspec.structs.replace(newest, conflated=Conflated(n=count, first=index))
