"""What is wrong with the line to a run: it is silent, it is lost, or an outage is being made up for. Pure."""

from overwatch.catalog.durations import duration
from overwatch.diagnose.link import LinkJudgement
from overwatch.diagnose.problem import Problem
from overwatch.state.run import RunState

AWAY = "collector-away"


def silent_run(state: RunState, link: LinkJudgement) -> Problem:
    """A run that says nothing, or has said nothing for so long that it is lost."""
    lost = link.state == "lost"
    silent = f"no telemetry for {duration(link.data_age_s)}"
    who = link.last_from or "nobody"
    return Problem(
        code="run-lost" if lost else "telemetry-stale",
        severity="critical",
        scope="run",
        subject=None,
        at=state.last_stamp,
        message=_lost(state) if lost else f"{silent}; last record from {who}; process state unknown",
        hint="look at the trainer's process and its log",
    )


def _lost(state: RunState) -> str:
    """How far it came: the last phase that ended, and what it can go on from."""
    parts = ["run lost: no end record"]
    phases = [(phase.at, name) for of_rank in state.phases.values() for name, phase in of_rank.items()]
    phase = max(phases, key=lambda seen: seen[0], default=None)
    if phase is not None:
        number = "" if state.update is None else f" {state.update:,}"
        parts.append(f"last phase {phase[1]}{number}")
    elif state.update is not None:
        parts.append(f"last update {state.update:,}")
    saved = state.checkpoint
    if saved is None:
        parts.append("no checkpoint told")
    else:
        before = duration(max(0.0, (state.last_at - saved.at) / 1e9), coarse=True)
        parts.append(f"last checkpoint {before} before the end")
    return ", ".join(parts)


def outage(state: RunState, link: LinkJudgement) -> Problem | None:
    """The collector was away and hears now what a spool kept: to be known, nothing to be done."""
    if link.away_s is None:
        return None
    return Problem(
        code=AWAY,
        severity="info",
        scope="run",
        subject=None,
        at=state.last_stamp - int(link.away_s * 1e9),
        message=f"the collector was away for {duration(link.away_s)}; what was told meanwhile is coming in",
        hint="nothing to do; what is shown is as old as the first line says",
    )
