"""Real PPO trainings that go wrong, or look as if they did: one dead from its first update, others reckless.

Owns their settings and the verdict that a person gives; they are trained and recorded as the healthy ones
are. Record one with `python -m tests.calibration.sick NAME`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.calibration.recorded import FOLDER, Recording, read, write
from tests.calibration.training import Task, train

SICK_FOLDER = FOLDER / "sick"


@dataclass(frozen=True, kw_only=True)
class Sick:
    """A learning rate, and what a person sees in the curves of its run."""

    learning_rate: float
    codes: frozenset[str]
    """Critical findings, any of which is right; none where the run is odd and learns all the same."""
    by: int = 0
    """Update by which the first of them must be there."""

    @property
    def task(self) -> Task:
        """CartPole with the settings of CleanRL's `ppo.py`, but for the learning rate."""
        settings = {"n_steps": 128, "batch_size": 128, "n_epochs": 4, "ent_coef": 0.01}
        settings["learning_rate"] = self.learning_rate
        return Task(env="CartPole-v1", seed=1, steps=30_000, n_envs=4, reaches=475, settings=settings)


SICK = {
    "dead": Sick(
        learning_rate=1e6, codes=frozenset({"policy-frozen", "critic-diverged", "policy-entropy"}), by=6
    ),
    "collapsed": Sick(learning_rate=10.0, codes=frozenset({"policy-collapse"}), by=4),
    "reckless": Sick(learning_rate=0.03, codes=frozenset()),
}
"""By name: at 1e6 the weights never come back from the first update; at 10 the policy is sure of itself at
once and jumps about; at 0.03 its steps are far too large, and it reaches 475 nevertheless."""


def sick_recordings() -> Iterator[Recording]:
    """Every recording that is kept, by name."""
    yield from (read(path) for path in sorted(SICK_FOLDER.glob("*.bin")))


if __name__ == "__main__":
    name = sys.argv[1]
    SICK_FOLDER.mkdir(exist_ok=True)
    (SICK_FOLDER / f"{name}.bin").write_bytes(write(train(name, SICK[name].task)))
