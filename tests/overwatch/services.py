"""A run of services, as its processes report themselves, record by record."""

from collections.abc import Mapping

from overwatch.catalog.tallies import SCOPE_OF_ROLE
from overwatch.diagnose.problem import Problem
from overwatch.diagnose.services import service_problems
from overwatch.events import Event, Measured, Origin, Record, Tallied, TallySeries, scalars
from overwatch.state import RunState, apply, new_run
from tests.fakes import SECOND, START_NS


class Reported:
    """A run of services, record by record."""

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}
        self.state: RunState | None = None

    def report(self, role: str, *events: Event, rank: int = 0) -> "Reported":
        """Fold what a process emitted, at the times of its events."""
        origin = Origin(run_id="run-1", role=role, rank=rank, epoch="e", ours=True)
        for event in events:
            owner = f"{role}/{rank}"
            self._seqs[owner] = self._seqs.get(owner, 0) + 1
            record = Record(origin=origin, event=event, seq=self._seqs[owner])
            self.state = self.state or new_run(record)
            apply(self.state, record, event.at)
        return self

    def gauges(self, role: str, at_s: float = 0.0, **named: float) -> "Reported":
        """Gauges by their short names with `_` for the dot that begins them."""
        values = scalars({f"{role}.{name}": value for name, value in named.items()})
        return self.report(role, Measured(at=at(at_s), scope=SCOPE_OF_ROLE[role], values=values))

    def counted(
        self, role: str, name: str, seconds: int, paces: Mapping[str, float], label: str
    ) -> "Reported":
        """What it counted second by second."""
        for second in range(seconds + 1):
            series = tuple(
                TallySeries(metric=f"{role}.{name}", labels={label: word} if label else {}, sum=pace * second)
                for word, pace in paces.items()
            )
            self.report(role, Tallied(at=at(second), scope=SCOPE_OF_ROLE[role], series=series))
        return self

    def found(self, later_s: float = 0.0) -> dict[str, Problem]:
        """What is wrong so long after the newest record."""
        assert self.state is not None
        tick = self.state.last_stamp + round(later_s * SECOND)
        return {one.code: one for one in service_problems(self.state, tick)}


def at(second: float) -> int:
    """A time so long after the start."""
    return START_NS + round(second * SECOND)
