"""A real run whose stream ends in this process: what it would write to its exporter, decoded."""

from collections.abc import Callable
from typing import Any

from overwatch.catalog import Scope
from overwatch.events import Measured
from overwatch.sdk import Run
from overwatch.sdk.frames import Frame
from overwatch.sdk.link import Outcome


class Received:
    """Takes frames as the link does and keeps them."""

    exporter_pid = None
    role = "trainer"
    rings = None

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def send(self, frame: Frame) -> None:
        """Take one frame."""
        self.frames.append(frame)

    def count_drop(self, reason: str) -> None:
        """A call that the run refused is a failure of the test."""
        raise AssertionError(f"a call was dropped: {reason}")

    def uses(self) -> int:
        """Frames taken."""
        return len(self.frames)

    def close(self, _: float, *, at_exit: bool = False) -> Outcome:  # noqa: ARG002 it ends here
        """Everything was taken."""
        return Outcome(accepted=len(self.frames), delivered=len(self.frames), kept=0, dropped={})

    def abandon(self, _: Callable[[], None]) -> None:
        """The stream belongs to the parent."""

    def of(self, kind: type[Frame]) -> list[Any]:
        """Frames of one kind."""
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def envs(self) -> list[Measured]:
        """Measurements of envs."""
        return [frame for frame in self.of(Measured) if frame.scope is Scope.ENV]


def local_run(num_envs: int | None = None) -> tuple[Run, Received]:
    """A run, and what it emits."""
    received = Received()
    return Run("local", received, num_envs), received  # type: ignore[arg-type]  # a link by its methods
