"""What to do after updates whose gradients were not finite: cut the learning rate, roll back, give up.

Rules: the gate has already skipped those minibatches, so nothing was lost yet; decisions follow delivered
numbers, which come up to two updates late, and never the same number twice. A cut holds. Must not know
algorithms, checkpoints or telemetry; no clock.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """When to do what."""

    cut: float = 0.5
    """The learning rate after an update that was not finite, as a share of that before."""
    least: float = 1 / 64
    """The rate is never cut below this share of the configured one."""
    rollback_after: int = 3
    """Updates in a row that were not finite, after which the newest checkpoint is loaded."""
    most_rollbacks: int = 3
    """The next one ends the run instead; counted anew after `calm` finite updates in a row."""
    calm: int = 50

    def __post_init__(self) -> None:
        if not 0.0 < self.cut < 1.0:
            raise ValueError(f"cut is {self.cut}; use a number between 0 and 1")
        if not 0.0 < self.least <= 1.0:
            raise ValueError(f"least is {self.least}; use a number above 0, 1 at most")
        for name in ("rollback_after", "calm"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.most_rollbacks < 0:
            raise ValueError(f"most_rollbacks is {self.most_rollbacks}; use 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was seen so far."""

    scale: float = 1.0
    """The learning rate as a share of the configured one."""
    bad: int = 0
    """Updates in a row that were not finite."""
    good: int = 0
    """Finite ones in a row."""
    rollbacks: int = 0
    """Since the last calm."""
    judged: int = 0
    """The newest update that was judged; older numbers and numbers of before a rollback are passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """Go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Set the learning rate to `scale` times the configured one."""

    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Load the newest checkpoint from before update `before`, then set the learning rate."""

    before: int
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """End the run as failed."""

    reason: str


Remedy: TypeAlias = Continue | Cut | RollBack | Abort


def judge(
    state: Recovery, config: RecoveryConfig, *, update: int, not_finite: int
) -> tuple[Recovery, Remedy]:
    """What follows from the numbers of `update`, of which so many minibatches had no finite gradient."""
    if update <= state.judged:
        return state, Continue()
    if not not_finite:
        good = state.good + 1
        rollbacks = 0 if good >= config.calm else state.rollbacks
        return replace(state, judged=update, bad=0, good=good, rollbacks=rollbacks), Continue()
    bad, scale = state.bad + 1, max(state.scale * config.cut, config.least)
    seen = replace(state, judged=update, bad=bad, good=0, scale=scale)
    if bad < config.rollback_after:
        return seen, Cut(scale=scale) if scale < state.scale else Continue()
    if state.rollbacks >= config.most_rollbacks:
        return seen, Abort(
            reason=f"gradients were not finite in {bad} updates in a row, after {state.rollbacks} rollbacks "
            f"and with the learning rate at {scale:g} of its value"
        )
    first = update - bad + 1
    return replace(seen, bad=0, rollbacks=state.rollbacks + 1), RollBack(before=first, scale=scale)


def resumed(state: Recovery, *, update: int) -> Recovery:
    """After a rollback during `update`: numbers of updates up to it are of the policy that was dropped."""
    return replace(state, judged=max(state.judged, update), bad=0, good=0)
