"""Recordings of real trainings: the numbers of their updates and their episodes, small enough to keep.

Owns the file's form (MessagePack, compressed) and how a recording becomes a run's events again.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent / "recordings"


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """An update that the trainer stopped before its last epoch."""

    epoch: int
    kl: float
    target: float


class Reported(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was emitted at one moment: an update, or episodes that ended."""

    after_ns: int
    """Nanoseconds since the training's start."""
    values: dict[str, float] = {}
    """An update's numbers by their full names, as the adapter emits them."""
    beside: dict[str, float] = {}
    """What the library worked out and did not log, by short name."""
    stop: Stop | None = None
    episodes: tuple[tuple[int, float, int], ...] = ()
    """Env, return and length of each."""

    def worse(self, times: float) -> "Reported":
        """The same with KL and the share clipped so many times as large."""
        steps = ("overwatch.policy.kl_divergence", "overwatch.policy.clip_fraction")
        values = {name: value * (times if name in steps else 1.0) for name, value in self.values.items()}
        return msgspec.structs.replace(self, values=values)


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One training."""

    name: str
    task: str
    n_envs: int
    seed: int
    config: dict[str, str]
    preset: str = "ppo"
    algo: str | msgspec.UnsetType = msgspec.UNSET
    """Where it is not PPO."""
    reaches: float
    reached: float
    """Mean return of the trained policy over twenty episodes."""
    reported: tuple[Reported, ...] = msgspec.field(name="told")

    def but(self, reported: tuple[Reported, ...]) -> "Recording":
        """The same training with other numbers."""
        return msgspec.structs.replace(self, reported=reported)

    @property
    def updates(self) -> list[Reported]:
        """What was emitted of updates, in order."""
        return [reported for reported in self.reported if reported.values]


def write(recording: Recording) -> bytes:
    """A recording as a file's bytes."""
    return zlib.compress(msgspec.msgpack.encode(recording), 9)


def read(path: Path) -> Recording:
    """The recording in a file."""
    return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=Recording)


def recordings() -> Iterator[Recording]:
    """Every recording that is kept, by name."""
    yield from (read(path) for path in sorted(FOLDER.glob("*.bin")))
