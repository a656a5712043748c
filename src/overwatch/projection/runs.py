"""The list of runs, from the snapshots of one moment. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from overwatch.snapshot import RunLine, RunList, Snapshot, View


def run_list(
    snapshots: Mapping[tuple[str, View], Snapshot], newest: str | None, archived: Iterable[RunLine] = ()
) -> RunList:
    """One line a run, by id, of each run's default view; `archived` are those that are there no more."""
    lines = [
        run_line(run_id, snapshot, newest=run_id == newest)
        for (run_id, view), snapshot in snapshots.items()
        if view == View()
    ]
    known = {line.run_id for line in lines}
    lines += [line for line in archived if line.run_id not in known]
    return RunList(newest=newest, runs=tuple(sorted(lines, key=lambda line: line.run_id)))


def aged(line: RunLine, tick: int) -> RunLine:
    """The line of an archived run at a tick: only the age of its data goes on."""
    if line.data_age_s is None:
        return line
    return msgspec.structs.replace(line, data_age_s=max(0.0, line.data_age_s + tick / 1e9 - line.time))


def aged_snapshot(snapshot: Snapshot, tick: int) -> Snapshot:
    """What an archived run shows at a tick: the same, as `aged` has it."""
    age_s = snapshot.link.data_age_s
    if age_s is None:
        return snapshot
    age_s = max(0.0, age_s + tick / 1e9 - snapshot.time)
    return msgspec.structs.replace(snapshot, link=msgspec.structs.replace(snapshot.link, data_age_s=age_s))


def run_line(run_id: str, snapshot: Snapshot, *, newest: bool) -> RunLine:
    """One run of the list."""
    run = snapshot.run
    return RunLine(
        run_id=run_id,
        newest=newest,
        task=run.task,
        algo=run.algo,
        state=snapshot.link.state,
        outcome=run.outcome,
        update=run.update,
        n_envs=run.n_envs,
        severity=snapshot.verdict.severity,
        text=snapshot.verdict.text,
        data_age_s=snapshot.link.data_age_s,
        time=snapshot.time,
    )
