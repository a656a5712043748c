"""The section of the exporter `command`: messages as JSON to a program of the operator's."""

import msgspec

from overwatch.serve.command import Command, Program
from overwatch.serve.notices import Level, NoticeLimits


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.command`."""

    argv: tuple[str, ...] = ()
    """The program and its arguments; no shell reads them. A message is on its standard input."""
    min_severity: Level = "warning"
    """The least severe finding that is sent: `info`, `warning` or `critical`."""
    per_minute: int = 30
    """Runs of it in any minute; what comes on top waits for its turn, the most severe first."""
    timeout_s: float = 10.0
    """Seconds that it may take; then it is killed with all that it started."""

    def __post_init__(self) -> None:
        self.limits()
        if self.missing is None:
            self.carrier()

    @property
    def missing(self) -> tuple[str, str] | None:
        """The key without which nothing can be sent, and what to do; `None` where it is there."""
        return (
            None
            if self.argv
            else ("argv", "the command has no program; give one, e.g. [/usr/local/bin/page]")
        )

    def limits(self) -> NoticeLimits:
        """What is sent; raises `ValueError`."""
        return NoticeLimits(min_severity=self.min_severity, per_minute=self.per_minute)

    def carrier(self) -> Command:
        """What runs it; raises `ValueError`."""
        return Command(Program(argv=self.argv, timeout_s=self.timeout_s))
