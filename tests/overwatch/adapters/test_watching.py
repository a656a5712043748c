"""A training that is one call is a run: it begins with the call, ends as the call ends, is not changed."""

from collections.abc import Callable

import pytest

from overwatch import sdk
from overwatch.adapters.watching import Watched
from overwatch.events import PhaseEnded, RunFinished
from tests.overwatch.adapters.receiving import local_run
from tests.overwatch.sdk.sink import Sink


class Trainer:
    """A library's trainer: each turn is a call of `step`."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.then = then

    def train(self, turns: int) -> list[int]:
        """Take turns, and perhaps raise."""
        taken = [self.step(turn) for turn in range(turns)]
        self.then()
        return taken

    def step(self, turn: int) -> int:
        """One turn."""
        return turn * 2


class Watching:
    """What an adapter adds."""

    def __init__(self, trainer: Trainer, run: sdk.Run | None) -> None:
        self.watched = Watched(self, run)
        self.trainer = trainer
        self.seen: list[tuple[int, int]] = []

    def start(self, turns: int) -> sdk.Run:
        """By the argument of `train`."""
        return sdk.start(task="toy", updates=turns, sample=False, quiet=True)

    def look(self) -> None:
        """At each turn, which is a phase."""
        self.watched.after(self.trainer, "step", self._see_step, "learn")

    def settle(self) -> None:
        """Nothing waits."""

    def _see_step(self, result: int, seconds: float, turn: int) -> None:
        assert seconds >= 0
        self.seen.append((turn, result))


def test_methods_are_looked_at_while_the_call_lasts_and_then_are_the_librarys_own() -> None:
    """Results are the same; each turn was a phase within `collect`."""
    run, received = local_run()
    trainer = Trainer()
    watching = Watching(trainer, run)
    watching.watched.over(trainer, "train")

    assert trainer.train(2) == [0, 2]
    assert watching.seen == [(0, 0), (1, 2)]
    assert "step" not in vars(trainer)
    phases = [phase.phase for phase in received.of(PhaseEnded)]
    assert phases == ["collect", "learn", "collect", "learn", "collect"]
    assert trainer.train(1) == [0]
    assert len(watching.seen) == 3


def test_an_error_of_the_adapter_never_reaches_the_loop() -> None:
    """It is counted."""
    run, _ = local_run()
    trainer = Trainer()
    watching = Watching(trainer, run)
    watching.seen = None  # type: ignore[assignment]
    watching.watched.over(trainer, "train")

    assert trainer.train(2) == [0, 2]
    assert watching.watched.failures == 2


def _raising(error: BaseException) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, "completed"), (ValueError("no"), "failed"), (KeyboardInterrupt(), "interrupted")],
    ids=["returns", "raises", "ctrl-c"],
)
def test_a_run_of_its_own_ends_as_the_call_ends(
    sink: Sink, error: BaseException | None, outcome: str
) -> None:
    """Also where the exception is caught, and one run after another."""
    for _ in range(2):
        trainer = Trainer() if error is None else Trainer(_raising(error))
        watching = Watching(trainer, None)
        watching.watched.over(trainer, "train")
        if error is None:
            trainer.train(1)
        else:
            with pytest.raises(type(error)):
                trainer.train(1)
        assert watching.watched.failures == 0

    assert [event.outcome for event in sink.events(RunFinished)] == [outcome] * 2
