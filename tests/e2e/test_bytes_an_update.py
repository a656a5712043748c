"""What an update takes on disk: bytes of each part for a run of nine numbers, once it is packed."""

import random
import time
from pathlib import Path

from overwatch.discovery import Endpoints
from overwatch.events import Measured
from tests import fakes
from tests.e2e.collecting import until
from tests.e2e.test_left_checkpoints import Reported, living

MOST_BYTES = 1200
"""Of an update, in all parts that grow with updates; the journal gives back what was read."""
LITTLE_BYTES = 32 << 10
"""Not packed, of what comes while the rest is waited for."""
PER_SECOND = 31
SECONDS = 30
IN_A_REQUEST = 3
"""An exporter sends each tenth of a second."""
NUMBERS = (
    "kl_divergence", "entropy", "policy_loss", "value_loss", "grad_norm", "clip_fraction",
    "learning_rate", "explained_variance", "return_mean",
)  # fmt: skip
SPEED = 5
"""Times as fast as the clock: a busy machine still sends this many updates a second."""
PACKED_AT_ONCE = ("exporters.otlp_file.rotation.max_minutes=0.5",)


class Training:
    """A trainer of one run, in the collector's time."""

    def __init__(self, run: Reported) -> None:
        self.run = run
        self.updates = 0
        self._chance = random.Random(7)  # noqa: S311 numbers that do not pack

    def emit(self, endpoints: Endpoints) -> None:
        """One request of an exporter."""
        at, number = self.run.now, self.updates + 1
        self.run.emit(endpoints, *(self._update(at + n, number + n) for n in range(IN_A_REQUEST)))
        self.updates += IN_A_REQUEST

    def train(self, endpoints: Endpoints) -> None:
        """Emit what a trainer does in so many of the collector's seconds."""
        self.run.emit(endpoints, fakes.started(self.run.now))
        began, step_ns = self.run.now, 10**9 // PER_SECOND
        while self.updates < PER_SECOND * SECONDS:
            due = began + (self.updates + IN_A_REQUEST) * step_ns
            time.sleep(max(0.0, (due - self.run.now) / 1e9 / self.run.speed))
            self.emit(endpoints)

    def _update(self, at: int, number: int) -> Measured:
        return fakes.policy(at, number, **{name: self._chance.random() for name in NUMBERS})


def of_recording(recording: Path, training: Training, seconds: float) -> float:
    """Bytes an update: of what is packed, with its index, and of checkpoints, which come by time."""
    sizes = {path: path.stat().st_size for path in recording.rglob("*") if path.is_file()}
    waiting = recording / "logs.jsonl"
    packed = training.updates - IN_A_REQUEST * len(waiting.read_bytes().splitlines())
    checkpoints = sum(size for path, size in sizes.items() if path.parent != recording)
    lines = sum(size for path, size in sizes.items() if path.parent == recording and path != waiting)
    return lines / packed + checkpoints / (PER_SECOND * seconds)


def test_an_update_takes_little_once_it_is_packed(tmp_path: Path) -> None:
    """Its recording with index and checkpoints, and its share of a snapshot a second, as shipped."""
    began = time.time_ns()
    training, recording = Training(Reported("run-a", began, SPEED)), tmp_path / "otlp"
    with living(tmp_path, began, *PACKED_AT_ONCE, every=None, speed=SPEED) as endpoints:
        training.train(endpoints)

        def packed() -> bool:
            live = sum(path.stat().st_size for path in recording.glob("logs.jsonl"))
            if live >= LITTLE_BYTES:
                # What comes next rotates what lies there for long enough.
                training.emit(endpoints)
                return False
            rotated = {path.name for path in recording.glob("logs-*")}
            return bool(rotated) and all(name.endswith(".zst") for name in rotated)

        until(packed, "the recording to be packed", 120)
    recorded = of_recording(recording, training, (training.run.now - began) / 1e9)
    lines = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    shown = sum(map(len, lines)) / len(lines) / PER_SECOND
    print(f"{recorded:.0f} bytes an update in the recording, {shown:.0f} in snapshots, not packed")

    assert min(recorded, shown) > 0
    assert recorded + shown <= MOST_BYTES
