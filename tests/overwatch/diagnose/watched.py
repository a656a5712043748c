"""A run of the policy, update by update, judged after each."""

from collections.abc import Callable, Sequence

from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.problem import Open
from overwatch.events import Event
from overwatch.state import RunState, apply
from tests import fakes
from tests.fakes import SECOND, START_NS

Rows = Callable[[int], dict[str, float]]

HEALTHY: dict[str, float] = {
    "kl_divergence": 0.007, "clip_fraction": 0.1, "entropy": 0.6, "explained_variance": 0.8,
    "value_loss": 1.0, "grad_norm": 1.0, "return": 100.0,
}  # fmt: skip


def wobble(update: int) -> float:
    """A little scatter, the same in every run."""
    return 1 + 0.04 * (((7 * update) % 11) - 5) / 5


class Watched:
    """A run that is judged after every update; remembers every finding by its code, and when it opened."""

    def __init__(self, config: dict[str, str] | None = None, preset: str = "ppo", **fields: object) -> None:
        event = fakes.started(START_NS, config=config or {}, preset=preset, **fields)
        self.state: RunState = fakes.folded([event])
        self.assessment = Assessment()
        self.opened: dict[str, int] = {}
        self.number = 0

    def emit(self, event: Event) -> None:
        """One event of the run."""
        (record,) = fakes.records([event], first_seq=2 + self.number * 2)
        self.number += 1
        apply(self.state, record, event.at)

    def updates(
        self, numbers: Sequence[int], rows: Rows, *, alone: bool = False, lasting_s: int = 1
    ) -> "Watched":
        """These updates; rows that are not given are healthy, or not sent where the given are `alone`."""
        for number in numbers:
            at = START_NS + number * lasting_s * SECOND
            values = {} if alone else {name: value * wobble(number) for name, value in HEALTHY.items()}
            sent = {name: value for name, value in {**values, **rows(number)}.items() if value is not None}
            self.emit(fakes.policy(at, index=number, **sent))
            self.assessment = assess(self.state, self.assessment, at).assessment
            for item in self.now.values():
                self.opened.setdefault(item.problem.code, number)
        return self

    @property
    def now(self) -> dict[str, Open]:
        """Findings that are open, by code."""
        found = self.assessment.findings.values()
        return {item.problem.code: item for item in found if item.cleared_at is None}

    def severities(self) -> dict[str, str]:
        """Open findings by code."""
        return {code: item.problem.severity for code, item in self.now.items()}
