"""How a run's telemetry ended or paused: failed, lost, silent, or late after an outage. Pure."""

from collections.abc import Iterator
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.diagnose.link import LinkJudgement
from overwatch.diagnose.problem import Problem
from overwatch.state.run import RunState

AWAY: Final = "collector-away"
LOST: Final = "run-lost"
_LOOK: Final = "look at the trainer's process and its log"


def line_problems(state: RunState, link: LinkJudgement) -> Iterator[Problem]:
    """What is wrong with a run that emits nothing, or nothing any more."""
    match link.state:
        case "lost":
            yield _lost(state)
        case "stale" | "silent":
            yield _quiet(state, link)
        case "ended" if state.finished is not None and state.finished.outcome == "failed":
            yield _about_run(
                "run-failed",
                "critical",
                state.finished.at,
                (f"FAILED: {state.finished.reason or 'no reason given'}", "read the trainer's log"),
            )
        case _:
            pass


def _quiet(state: RunState, link: LinkJudgement) -> Problem:
    """Stale where an end record was promised; else it may as well have ended."""
    silent = (
        f"no telemetry for {duration(link.data_age_s)}; last record from {link.last_from or 'no producer'}"
    )
    if link.state == "stale":
        words = f"{silent}; process state unknown", _LOOK
        return _about_run("telemetry-stale", "critical", state.last_stamp, words)
    hint = f"{_LOOK}; a producer that emits overwatch.run_finished shows its end"
    words = f"{silent}; it sends no end record: finished or killed", hint
    return _about_run("run-silent", "warning", state.last_stamp, words)


def _lost(state: RunState) -> Problem:
    """Why, where that is known, and how far it came."""
    finished, reached = state.finished, tuple(_reached(state))
    if finished is None:
        message = ", ".join(("LOST: no end record", *reached))
        return _about_run(LOST, "critical", state.last_stamp, (message, _LOOK))
    message = f"LOST: {finished.reason or 'no end record'}"
    return _about_run(LOST, "critical", finished.at, (message, _LOOK), reached)


def _about_run(
    code: str, severity: str, at: int, words: tuple[str, str], factors: tuple[str, ...] = ()
) -> Problem:
    message, hint = words
    return Problem(
        code=code, severity=severity, scope="run", subject=None, at=at, message=message, hint=hint,
        factors=factors,
    )  # fmt: skip


def _reached(state: RunState) -> Iterator[str]:
    """The last phase that ended, and what the run can go on from."""
    phases = [(phase.at, name) for of_rank in state.phases.values() for name, phase in of_rank.items()]
    phase = max(phases, key=lambda seen: seen[0], default=None)
    if phase is not None:
        number = "" if state.update is None else f" {state.update:,}"
        yield f"last phase {phase[1]}{number}"
    elif state.update is not None:
        yield f"last update {state.update:,}"
    saved = state.checkpoint
    if saved is None:
        yield "no checkpoint seen"
    else:
        before = duration(max(0.0, (state.last_at - saved.at) / 1e9), coarse=True)
        yield f"last checkpoint {before} before the end"


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
