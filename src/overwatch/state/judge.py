"""Judging one value by its row's limits: the only place where a number becomes a status.

Pure. A status is of one value at one moment; holds and findings are made elsewhere from many statuses.
"""

import math
from enum import IntEnum

import msgspec

from overwatch.catalog import Limit, Limits


class Status(IntEnum):
    """How good one value is; larger is worse."""

    OK = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        """The word in JSON."""
        return self.name.lower()


class Judgement(msgspec.Struct, frozen=True):
    """A status with the limit in use: the one crossed, else the nearest."""

    status: Status
    limit: Limit | None = None
    threshold: float | None = None
    """The limit's number in the row's unit, with a relative limit multiplied out."""


def judge(value: float, limits: Limits, median: float | None) -> Judgement:
    """Judge a finite value; `median` is the run's own, `None` while there is none (relative limits wait)."""
    if limits.other is None:
        return _judge_side(value, limits, median)
    found = [_judge_side(value, side, median) for side in limits.sides]
    return max(found, key=lambda judged: (judged.status, -_distance(value, judged)))


def _judge_side(value: float, limits: Limits, median: float | None) -> Judgement:
    nearest: Judgement | None = None
    for status, limit in ((Status.CRITICAL, limits.critical), (Status.WARNING, limits.warning)):
        if limit is None:
            continue
        threshold = limit.threshold(median)
        if threshold is None:
            continue
        if limit.side.crossed(value, threshold):
            return Judgement(status, limit, threshold)
        nearest = Judgement(Status.OK, limit, threshold)
    return nearest or Judgement(Status.OK)


def _distance(value: float, judged: Judgement) -> float:
    return math.inf if judged.threshold is None else abs(value - judged.threshold)
