"""`project`: from state and judgement to a snapshot. Only selects, cuts and formats; cheap and pure."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import Kind, Scope, of_scope
from overwatch.diagnose import Judged
from overwatch.events.adding import added
from overwatch.projection.board import aggregates, board
from overwatch.projection.policy import parting_view, readings
from overwatch.projection.rows import BoardRows, detail
from overwatch.projection.run import feed_rate, feed_view, link_view, phase_times, run_view
from overwatch.projection.services import gauges, service_lines, tallies, totals
from overwatch.projection.system import system_view
from overwatch.projection.verdict import findings_view, verdict_view
from overwatch.snapshot import Snapshot, View
from overwatch.state import RunState

__all__ = ["project", "project_views"]


_COUNTERS: Final = tuple(
    row.short
    for scope in (Scope.RUN, Scope.ENV, Scope.TOWER)
    for row in of_scope(scope)
    if row.kind is Kind.COUNTER
)


def project(state: RunState, judged: Judged, view: View) -> Snapshot:
    """The snapshot of one run for one view, at the tick that was judged."""
    return project_views(state, judged, (view,))[view]


def project_views(state: RunState, judged: Judged, views: Sequence[View]) -> dict[View, Snapshot]:
    """The snapshots of one run for some views; what is the same in all of them is made once."""
    # Telemetry may hold any number; what overflows becomes infinite, and is shown as absent.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rows = BoardRows(state, judged)
        shared = _shared(rows)
        return {view: _of_view(rows, shared, view) for view in views}


def _of_view(rows: BoardRows, shared: Snapshot, view: View) -> Snapshot:
    head, envs = board(rows, view)
    selected = None if view.env_id is None else detail(rows, view.env_id)
    return msgspec.structs.replace(shared, board=head, envs=envs, detail=selected)


def _shared(rows: BoardRows) -> Snapshot:
    """All but the board and the selected env."""
    state, judged = rows.state, rows.judged
    tick = judged.assessment.tick
    findings = findings_view(state, judged)
    return Snapshot(
        time=tick / 1e9,
        run=run_view(state, judged),
        link=link_view(state, judged, tick),
        verdict=verdict_view(state, judged, findings),
        policy=readings(state, judged),
        parting=parting_view(state, judged),
        services=gauges(state, tick),
        processes=service_lines(state, judged),
        tallies=tallies(state),
        totals=totals(state),
        system=system_view(state, judged),
        aggregates=aggregates(rows),
        findings=findings,
        feed=feed_view(state),
        feed_rate=feed_rate(state),
        counters=_counters(state, judged),
        phases=phase_times((*state.phases.values(), *state.beside.values())),
    )


def _counters(state: RunState, judged: Judged) -> dict[str, float]:
    """Every run counter of the catalogue, at 0 from the first snapshot on; env steps once some are known.

    Envs may be reported without the number of their step: how many they took is then not known.
    """
    known: dict[str, float] = {
        "updates": state.updates,
        "episodes": state.episodes,
        "steps": state.steps,
        "non_finite": state.non_finite,
        "crashes": state.crashes,
        "rollbacks": state.rollbacks,
        "gpu_idle": added(judged.assessment.watched.waste.of_all().values()),
        "sdk_dropped": state.tower.get("sdk_dropped", 0),
    }
    counts = {short: max(float(known[short]), state.reported_counts.get(short, 0.0)) for short in _COUNTERS}
    return {short: count for short, count in counts.items() if count or short != "steps"}
