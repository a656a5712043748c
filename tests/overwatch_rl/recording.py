"""A run of the SDK whose frames are kept instead of sent; everything before the sending is the real thing."""

from typing import TypeVar, cast

from overwatch.sdk import Run
from overwatch.sdk.frames import Frame
from overwatch.sdk.link import Link, Outcome

F = TypeVar("F")


class KeptLink:
    """Takes the place of the link to the exporter process."""

    exporter_pid = None
    rings = None

    def __init__(self, role: str = "trainer") -> None:
        self.role = role
        self.frames: list[Frame] = []
        self.refused: list[str] = []

    def send(self, frame: Frame) -> None:
        """Keep one frame."""
        self.frames.append(frame)

    def count_drop(self, reason: str) -> None:
        """What the run could not take."""
        self.refused.append(reason)

    def uses(self) -> int:
        """Nothing is counted here."""
        return 0

    def close(self, timeout: float, *, at_exit: bool = False) -> Outcome:  # noqa: ARG002 the real link's seam
        """Everything arrived."""
        return Outcome(accepted=0, delivered=0, kept=0, dropped={})


class KeptRun(Run):
    """A real run over a kept link."""

    def __init__(self, n_envs: int | None = None, role: str = "trainer") -> None:
        self.link = KeptLink(role)
        self.frames = self.link.frames
        super().__init__("kept", cast("Link", self.link), n_envs)

    def of(self, kind: type[F]) -> list[F]:
        """The frames of one kind, in their order."""
        return [frame for frame in self.frames if isinstance(frame, kind)]
