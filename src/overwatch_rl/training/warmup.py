"""The plan of a run: how the same numbers are computed fastest here, chosen by measurement before training.

Owns the grid and the search: every plan of the grid is timed twice on as few rows as show its speed, unless
the budget is spent before. Rules: all is tried on a twin of the algorithm, so that not a bit of the run
changes; a network without convolutions is not measured, since its layers are too small to differ. A plan that
fails, as a compiler may, is left out. Must not know losses, worlds or telemetry.

On a CPU the grid has no compiled plan: a compiled update was measured slower there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import torch
from torch import nn

from overwatch_rl.algorithms.common import PRECISIONS, Alone, Batch, Plan, Ranks

CHUNKS: Final = (256, 128, 512, 64)
"""The likeliest first, since a budget may end the search."""
_SHOWING: Final = 512
"""Rows on which a plan in chunks shows its speed."""
_FEWEST: Final = 128
"""Rows of a minibatch below which chunks are not tried."""


class Tunable(Protocol):
    """An algorithm whose update can be tried."""

    device: torch.device

    @property
    def policy(self) -> nn.Module:
        """What computes."""
        ...

    @property
    def plan(self) -> Plan:
        """How, now."""
        ...

    def clone(self) -> Self:
        """A copy that shares nothing."""
        ...

    def apply_plan(self, plan: Plan) -> None:
        """Compute by another plan."""
        ...

    def benchmark_backward(self, batch: Batch) -> None:
        """The work of one minibatch without its step."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One plan as it was measured."""

    plan: Plan
    row_s: float | None
    """Least seconds a row; `None` where the plan failed or there was no time for it."""
    error: str | None = None
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was chosen, and from what."""

    plan: Plan
    table: tuple[Trial, ...]
    """Fastest first; empty where nothing was measured."""
    seconds: float
    """What the search took."""

    def numbers(self) -> dict[str, float]:
        """What is reported with an update, by short catalogue name."""
        return {"warmup_s": self.seconds}

    def words(self) -> dict[str, str]:
        """Chosen plan and figures, as shown with the run and kept in checkpoints."""
        figures = ", ".join(
            f"{words(one.plan)} {one.row_s * 1e6:.1f} µs a row" for one in self.table if one.row_s is not None
        )
        return {"plan": words(self.plan), "plan_table": figures or "not measured"}


def words(plan: Plan) -> str:
    """A plan in words, as `bf16 channels-last chunk-256`."""
    layout = "channels-last" if plan.channels_last else "contiguous"
    chunk = "whole" if plan.chunk is None else f"chunk-{plan.chunk}"
    return " ".join([plan.precision, layout, chunk, *(["compiled"] if plan.is_compiled else [])])


def grid(kind: str, rows: int, *, has_images: bool) -> list[Plan]:
    """The plans to try on a kind of device for minibatches of so many rows, the likeliest first."""
    if not has_images:
        return []
    layouts = [(precision, last) for precision in reversed(PRECISIONS) for last in (True, False)]
    if kind == "cuda":
        return [
            Plan(precision=precision, channels_last=last, is_compiled=is_compiled)
            for is_compiled in (True, False)
            for precision, last in layouts
        ]
    chunks = [size for size in CHUNKS if size < rows] if rows >= _FEWEST else []
    return [
        Plan(precision=precision, channels_last=last, chunk=chunk)
        for chunk in (*chunks, None)
        for precision, last in layouts
    ]


def choose(
    algorithm: Tunable,
    batch: Batch,
    budget_s: float,
    clock: Callable[[], float],
    *,
    minibatches: int = 1,
    ranks: Ranks | None = None,
) -> Tuned:
    """The fastest plan for minibatches of a batch, the same on all ranks; the algorithm stays as it was.

    `clock` gives seconds, of the process or of the wall; what would end beyond the budget is not begun.
    """
    began = clock()
    rows = math.ceil(len(batch) / minibatches)
    has_images = any(isinstance(module, nn.Conv2d) for module in algorithm.policy.modules())
    plans = grid(algorithm.device.type, rows, has_images=has_images)
    if not plans or algorithm.device.type == "meta":
        return Tuned(plan=algorithm.plan, table=(), seconds=0.0)
    twin = algorithm.clone()
    bench = _Bench(twin, batch, rows, clock, began + budget_s)
    for plan in (*plans, *plans):
        bench.measure(plan)
    table = bench.table(plans)
    found = table[0].plan if table[0].row_s is not None else algorithm.plan
    number = torch.tensor(plans.index(found) if found in plans else -1, device=algorithm.device)
    (ranks or Alone()).share([number])
    at = int(number)
    return Tuned(plan=plans[at] if at >= 0 else found, table=table, seconds=clock() - began)


class _Bench:
    """Times plans on one twin."""

    def __init__(
        self, twin: Tunable, batch: Batch, rows: int, clock: Callable[[], float], deadline: float
    ) -> None:
        self._twin = twin
        self._batch = batch
        self._rows = rows
        self._clock = clock
        self._deadline = deadline
        self.least: dict[Plan, float] = {}
        self._errors: dict[Plan, str] = {}

    def measure(self, plan: Plan) -> None:
        """Time one plan once more; not one that failed, nor when it would take longer than is left."""
        rows = self._rows if plan.chunk is None else min(self._rows, max(plan.chunk, _SHOWING))
        if plan in self._errors or self._clock() + rows * self._expected(plan) >= self._deadline:
            return
        shown = self._batch.rows(torch.arange(rows, device=self._twin.device))
        try:
            self._twin.apply_plan(plan)
            if plan not in self.least:
                # Kernels are made and memory is taken at the first pass of a shape.
                first = rows if plan.chunk is None and plan.is_compiled else min(rows, plan.chunk or _FEWEST)
                self._twin.benchmark_backward(shown.rows(torch.arange(first, device=self._twin.device)))
            self._wait()
            began = self._clock()
            self._twin.benchmark_backward(shown)
            self._wait()
        except Exception as error:
            # A compiler may raise anything; a kernel or a memory that is not there is a `RuntimeError`.
            if not plan.is_compiled and not isinstance(error, RuntimeError):
                raise
            self._errors[plan] = f"{type(error).__name__}: {error}"
            self.least.pop(plan, None)
            return
        row_s = (self._clock() - began) / rows
        self.least[plan] = min(row_s, self.least.get(plan, math.inf))

    def table(self, plans: Sequence[Plan]) -> tuple[Trial, ...]:
        """All plans, the fastest first."""
        trials = (
            Trial(plan=plan, row_s=self.least.get(plan), error=self._errors.get(plan)) for plan in plans
        )
        return tuple(sorted(trials, key=lambda one: math.inf if one.row_s is None else one.row_s))

    def _expected(self, plan: Plan) -> float:
        """Seconds a row, by the fastest plan of its precision and layout."""
        return min(
            (
                row_s
                for one, row_s in self.least.items()
                if (one.precision, one.channels_last) == (plan.precision, plan.channels_last)
            ),
            default=0.0,
        )

    def _wait(self) -> None:
        if self._twin.device.type == "cuda":
            torch.cuda.synchronize(self._twin.device)
