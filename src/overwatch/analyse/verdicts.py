"""What was said of a run over time: one entry each time that its verdict became another. Pure."""

from dataclasses import dataclass, field

from overwatch.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A verdict from some moment on."""

    at: float
    """Seconds since the run began."""
    update: float
    severity: str
    text: str


@dataclass(slots=True)
class Verdicts:
    """In order."""

    told: list[Told] = field(default_factory=list)

    def take(self, snapshot: Snapshot, now: float) -> None:
        """Go on with one snapshot."""
        verdict = snapshot.verdict
        last = self.told[-1] if self.told else None
        if last is None or (last.severity, last.text) != (verdict.severity, verdict.text):
            update = float(snapshot.run.update or 0)
            self.told.append(Told(at=now, update=update, severity=verdict.severity, text=verdict.text))
