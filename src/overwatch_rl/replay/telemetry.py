"""What a replay server reports to the tower: how its tables stand, what they did, how calls ended.

Rules: counts of tables are the differences of their own, so that each thing is counted once,
whichever process did it; an absent number is not sent. Must not know gRPC.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Final, TypeAlias

import overwatch.sdk
from overwatch.sdk import Run
from overwatch.sdk.tracing import Span
from overwatch_rl.replay.base import TableStats
from overwatch_rl.web.spans import SERVED_A_SECOND, Spans

ROLE: Final = "replay"
_PREFIX: Final = f"{ROLE}."
"""Of the rows of replay, from any sender: a learner does for tables in Redis."""
Refused: TypeAlias = Mapping[str, Mapping[str, int]]


class Tower:
    """Reports to a run of the tower; without a run nothing."""

    def __init__(self, run: Run | None) -> None:
        self._run = run
        self._spans = Spans(run, SERVED_A_SECOND)
        self._before: dict[tuple[object, ...], int] = {}

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """One below the caller's, where there may be one more."""
        return self._spans.within(traceparent, name)

    def answered(self, method: str, status: str, seconds: float) -> None:
        """Count it, and how long it took, waiting included."""
        if self._run is not None:
            self._run.count("requests", method=method, status=status)
            self._run.observe("request_duration", seconds, method=method)

    def go_on(self, tables: Sequence[TableStats]) -> None:
        """What was done before is not counted."""
        totals = chain(*map(_totals, tables), _late(tables))
        self._before = {(name, labels): total for name, total, labels in totals}

    def swept(self, tables: Sequence[TableStats], refused: Refused) -> None:
        """Send how things stand and what was done since the last time."""
        if self._run is None:
            return
        held: dict[str, list[int | None]] = {
            "items": [table.items for table in tables],
            "steps": [table.steps for table in tables],
            "memory": [table.bytes for table in tables],
            "leases": [table.leases for table in tables],
        }
        self._run.gauge(**{_PREFIX + name: number for name, number in _where_known(held).items()})
        for name, total, labels in chain(*map(_totals, tables), _late(tables), _refusals(refused)):
            key = (name, labels)
            n = total - self._before.get(key, 0)
            self._before[key] = total
            if n > 0:
                self._run.count(_PREFIX + name, n, **dict(labels))


Total: TypeAlias = tuple[str, int, tuple[tuple[str, str], ...]]
"""Of a row, with its labels."""


def _where_known(columns: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    """Sums over the tables that have such a number."""
    known = {name: [value for value in values if value is not None] for name, values in columns.items()}
    return {name: sum(values) for name, values in known.items() if values}


def _totals(table: TableStats) -> Iterator[Total]:
    of = ("table", table.name)
    yield "inserted", table.accepted, (of,)
    yield "sampled", table.sampled, (of,)
    yield "redelivered", table.redelivered, (of,)
    for reason, items in table.removed.items():
        yield "removed", items, (of, ("reason", reason))


def _late(tables: Iterable[TableStats]) -> Iterator[Total]:
    """Over all tables: the row has no label for one."""
    kinds = sum((Counter(table.late) for table in tables), Counter[str]())
    for kind, count in kinds.items():
        yield "late", count, (("kind", kind),)


def _refusals(refused: Refused) -> Iterator[Total]:
    for table, reasons in refused.items():
        for reason, count in reasons.items():
            yield "refused", count, (("table", table), ("reason", reason))


def start_run(run_id: str | None, endpoint: str | None, rank: int) -> Run:
    """Begin to report; the SDK finds or makes what is not given."""
    return overwatch.sdk.start(run_id=run_id, endpoint=endpoint, role=ROLE, rank=rank, task="replay")
