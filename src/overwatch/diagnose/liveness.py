"""Whether what is known of a run is fresh: the link, clocks, silences, training and processes that stopped.

The producers that hold a run decide; what others send, or do not send, changes nothing. Each is judged by its
own rhythm. One that promised an end record is stale, then lost; one that did not is only silent.

- Clocks ahead of the collector's: only what is certain is reported. A record that comes before it was sent is
  that of a wrong clock; one that comes late may have waited in a spool as well.
- Two lives that write at once for one producer: only producers that number their records are judged, since
  others may share a name by right; a life that was replaced, and whose last records come late, overlaps with
  nothing.
- The clock of the data is how much of the run's own time has passed, by its producers' records. Machine
  readings and counts are held for so long of this clock, so that a spool which drains at nine times the pace
  is judged as it would have been live. It never goes back; each producer's clock counts from where it was
  first received, so that skew does not matter; a silence lets it run on for a while, then it stands.
- What stood when a run last sent is kept, neither cleared nor judged: a run that is silent, lost or over has
  no values to judge by, and its end heals nothing. What is only true of a run that goes on leaves with it,
  and so does what the end itself brought about: loops that stop, envs that wait, processes that leave.
- A pause that is announced is a state, whoever announced it, until it takes far longer than its kind ever
  did; but who spoke in it and stopped is silent. So is the wait for a first update.
- The watchdog measures each rank by its own rhythm: how long after the end of one phase the next one usually
  ends. The rank that stopped first is named, whether it hangs, ended or was killed: the others wait for it.
  Silence is measured on the stamp clock, everything else on the producer's own.

Pure.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from overwatch.catalog.durations import duration
from overwatch.catalog.tallies import SCOPE_OF_ROLE
from overwatch.diagnose.problem import STEADY, Followed, Problem
from overwatch.events import FOLLOWER
from overwatch.state.arrays import median
from overwatch.state.rhythm import Phase, Rhythm
from overwatch.state.run import RunState
from overwatch.state.sources import (
    FOREIGN_S,
    INTERVALS,
    LEARNS,
    OUTAGE_S,
    UNKNOWN_S,
    Source,
    holder_of,
    latest_lives,
    speed,
    spoken_for,
    team_of,
)

AHEAD_S: Final = 2.0
"""Synchronised clocks are within a tenth of a second; ages are shown in tenths, judged in seconds."""


def ahead_s(source: Source) -> float | None:
    """How far its clock is ahead at the least, in seconds; `None` where that is little or not known."""
    seconds = -source.delay / 1e9
    return seconds if seconds >= AHEAD_S else None


def clocks_ahead(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of the sources whose newest record is from the future, of those that send at `tick`."""
    return tuple(
        key for key, source in state.sources.items() if ahead_s(source) is not None and source.is_live(tick)
    )


TOGETHER_NS: Final = 5_000_000_000
"""Two lives overlap when the older sent this long after the newer began, by producers' time."""


def overlapping(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of the sources that share a role and a rank with another one that lives, at `tick`."""
    if len(state.sources) < 2:
        return ()
    lives: dict[str, list[str]] = {}
    for key in state.sources:
        lives.setdefault(key.rpartition("/")[0], []).append(key)
    for role, keys in lives.items():
        if len(keys) > 1:
            sources = {key: state.sources[key] for key in keys}
            lives[role] = [key for key, source in sources.items() if source.high and source.is_live(tick)]
    return tuple(
        key
        for keys in lives.values()
        for key in keys
        if any(_overlap(state.sources[key], state.sources[other]) for other in keys if other != key)
    )


def _overlap(one: Source, other: Source) -> bool:
    return min(one.at, other.at) - max(one.first_at, other.first_at) >= TOGETHER_NS


SLOW_S: Final = 2.0
LOST_S: Final = 60.0
LOST_TIMES: Final = 4
"""Times its patience until a source that is stale is lost."""
QUIET: Final = frozenset({"stale", "silent", "lost", "ended"})
"""Words for a run that emits nothing: what stood when it last did is kept, and not judged again."""
STALE: Final = QUIET - {"ended"}
"""Words for a run that may go on, of which nothing is known now."""
OVER: Final = frozenset({"ended", "lost"})
"""Words for a run of which nothing more is expected."""


class LinkJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The link at one tick."""

    state: str
    """`live`, `slow`, `stale`, `silent`, `catching_up`, `lost` or `ended`."""
    data_age_s: float
    lag_s: float
    last_from: str | None = None
    """The holder that emitted last: `rank 0`, or the role with the rank."""
    away_s: float | None = None
    """While a spool drains: how long nothing had come before."""
    speed: float | None = None
    """While a spool drains: seconds of the run received in one second."""
    overlapping: tuple[str, ...] = ()
    """Keys of the sources that send at once for one role and rank."""
    ahead: tuple[str, ...] = ()
    """Keys of the sources whose clock is ahead of ours."""


def judge_link(state: RunState, tick: int) -> LinkJudgement:
    """Judge those that hold a run at `tick` (Unix ns on the stamp clock)."""
    holders = _holders(state)
    newest = max((source.stamp for source in holders.values()), default=state.last_stamp)
    live = [source for source in holders.values() if source.stamp == newest]
    latest = min(live, key=Source.lag_s) if live else None
    lag_s = 0.0 if latest is None else latest.lag_s()
    word = _word(state, holders, tick, lag_s)
    drain = None if latest is None or word != "catching_up" else latest.drain
    return LinkJudgement(
        state=word,
        data_age_s=max(0.0, (tick - newest) / 1e9) + lag_s,
        lag_s=lag_s,
        last_from=None if latest is None else latest.speaker,
        away_s=None if drain is None else drain.away_s,
        speed=None if latest is None or drain is None else speed(latest),
        overlapping=overlapping(state, tick),
        ahead=clocks_ahead(state, tick),
    )


def _holders(state: RunState) -> Mapping[str, Source]:
    """The lives whose silence is the run's: those that go on; of a run that is over, its last holder.

    While it is paused a trainer may be silent: any process that goes on stands for the run, of those that
    spoke in the pause.
    """
    if state.paused_at is not None:
        there = {key: source for key, source in state.sources.items() if not source.finished}
        return {key: one for key, one in there.items() if one.at - state.paused_at >= SPOKE_NS} or there
    if state.finished is None:
        return {key: source for key, source in team_of(state.sources).items() if not source.finished}
    key = holder_of(state.sources)
    return {} if key is None else {key: state.sources[key]}


def _word(state: RunState, holders: Mapping[str, Source], tick: int, lag_s: float) -> str:
    if state.finished is not None:
        return "lost" if state.finished.outcome == "lost" else "ended"
    newest = max((source.stamp for source in holders.values()), default=state.last_stamp)
    # While the collector was away nothing could be received: silence counts from its return.
    quiet_s = (tick - max(newest, state.back_stamp)) / 1e9
    was_away = state.back_stamp > newest
    if quiet_s < SLOW_S and not was_away:
        return "catching_up" if lag_s >= OUTAGE_S else "live"
    if not holders:
        return "lost"
    # The life that is least overdue: another may have been replaced, or be gone.
    calmest = min(holders.values(), key=lambda source: _overdue_s(state, source, tick))
    quiet_s = (tick - max(calmest.stamp, state.back_stamp)) / 1e9
    patience_s = silence_of(state, calmest)
    if was_away and quiet_s < patience_s:
        return "slow"
    if quiet_s >= patience_s:
        is_lost = quiet_s >= max(LOST_S, LOST_TIMES * calmest.allowed_s(), 2 * patience_s)
        is_open = state.origin.service == FOLLOWER or not calmest.promised
        return "silent" if is_open else "lost" if is_lost else "stale"
    if lag_s >= OUTAGE_S:
        return "catching_up"
    is_slow = calmest.promised and quiet_s >= max(SLOW_S, calmest.allowed_s())
    return "slow" if is_slow and patience_s <= UNKNOWN_S else "live"


def _overdue_s(state: RunState, source: Source, tick: int) -> float:
    """Seconds for which it is quieter than its rhythm makes usual; below 0 while it is not."""
    return (tick - max(source.stamp, state.back_stamp)) / 1e9 - silence_of(state, source)


SPOKE_NS: Final = 5_000_000_000
"""Who emits so long after a pause began does so in it."""


def silence_of(state: RunState, source: Source) -> float:
    """Seconds for which a source may be silent now: by its rhythm, and by the pause that was announced."""
    patience_s = source.patience_s()
    if state.origin.service == FOLLOWER:
        patience_s = max(patience_s, FOREIGN_S)
    if state.paused_at is not None and source.at - state.paused_at < SPOKE_NS:
        return math.inf
    rhythm = state.rhythms.get(source.rank)
    for name, began in () if rhythm is None or source.is_beside else rhythm.open.items():
        if source.at - began < SPOKE_NS:
            phase = state.phases.get(source.rank, {}).get(name)
            patience_s = max(patience_s, _pause_s(phase))
    return patience_s


RUNS_ON_NS: Final = 5_000_000_000
"""So long the clock runs on while nothing is sent."""


class DataClock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock at one tick."""

    now: int = 0
    """Nanoseconds; only differences mean something."""
    lead: int = 0
    """What the producers reported of it."""
    received: int = 0
    """Tick at which `lead` last moved."""
    anchors: dict[str, int] = {}
    """What to add to each producer's time."""


def advanced(before: DataClock, state: RunState, tick: int) -> DataClock:
    """The clock at `tick`, after what the producers have sent by then."""
    if not before.received:
        first = {key: tick - source.at for key, source in state.sources.items()}
        return DataClock(now=tick, lead=tick, received=tick, anchors=first)
    anchors, reported = before.anchors, before.lead
    if anchors.keys() != state.sources.keys():
        anchors = {key: anchors.get(key, before.now - source.at) for key, source in state.sources.items()}
    for key, source in state.sources.items():
        reported = max(reported, anchors[key] + source.at)
    lead, received = (reported, tick) if reported > before.lead else (before.lead, before.received)
    now = max(before.now, lead + min(max(0, tick - received), RUNS_ON_NS))
    return DataClock(now=now, lead=lead, received=received, anchors=anchors)


AWAY: Final = "collector-away"
LOST: Final = "run-lost"
STALLED: Final = "training-stalled"
_LOOK: Final = "look at the trainer's process and its log"


def line_problems(state: RunState, link: LinkJudgement) -> Iterator[Problem]:
    """What is wrong with a run that emits nothing, or nothing any more."""
    match link.state:
        case "lost":
            yield _lost_problem(state)
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
        f"{_first_silent(state)}"
    )
    if link.state == "stale":
        words = f"{silent}; process state unknown", _LOOK
        return _about_run("telemetry-stale", "critical", state.last_stamp, words)
    if state.origin.service == FOLLOWER:
        words = (
            f"{silent}; its files are not followed now",
            "start `overwatch follow` again: it goes on from there",
        )
        return _about_run("run-silent", "warning", state.last_stamp, words)
    hint = f"{_LOOK}; a producer that emits overwatch.run_finished shows its end"
    words = f"{silent}; it sends no end record: finished or killed", hint
    return _about_run("run-silent", "warning", state.last_stamp, words)


def _first_silent(state: RunState) -> str:
    """Which rank stopped well before the others, whose silence may be that they wait for it."""
    team = sorted(team_of(state.sources).values(), key=lambda source: source.stamp)
    if len(team) < 2:
        return ""
    first, before_s = team[0], (team[1].stamp - team[0].stamp) / 1e9
    if before_s < max(SLOW_S, INTERVALS * (first.interval_s() or 0.0)):
        return ""
    why = (
        ""
        if first.ending is None
        else f" ({first.ending.outcome}: {first.ending.reason or 'no reason given'})"
    )
    return f"; {first.speaker} stopped {duration(before_s)} before the others{why}"


def _lost_problem(state: RunState) -> Problem:
    """Why, where that is known, and how far it came."""
    finished, reached = state.finished, tuple(_reached(state))
    if finished is None:
        message = ", ".join(("LOST: no end record", *reached)) + _first_silent(state)
        return _about_run(LOST, "critical", state.last_stamp, (message, _LOOK))
    message = f"LOST: {finished.reason or 'no end record'}"
    return _about_run(LOST, "critical", finished.at, (message, _LOOK), reached)


def _about_run(
    code: str, severity: str, at: int, words: tuple[str, str], factors: tuple[str, ...] = ()
) -> Problem:
    message, hint = words
    return Problem(
        code=code, severity=severity, at=at, message=message, hint=hint,
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


def line(state: RunState, link: LinkJudgement) -> Iterator[Problem]:
    """What is wrong with telemetry that comes: late from a spool, mixed, or from the future."""
    if link.away_s is not None:
        away = duration(link.away_s)
        yield Problem(
            code=AWAY,
            severity="info",
            at=state.last_stamp - int(link.away_s * 1e9),
            message=f"the collector was away for {away}; what was sent meanwhile is coming in",
            hint="nothing to do; what is shown is as old as the first line states",
        )
    sources = [state.sources[key] for key in link.overlapping]
    if sources:
        names = spoken_for(sources)
        yield Problem(
            code="overlapping-writers",
            at=max(source.first_at for source in sources),
            message=f"{len(sources)} processes speak at once as {names}: their values are mixed",
            hint="give each run its own id, each process its own rank; end the one that was left over",
            patience=STEADY,
        )
    ahead = [state.sources[key] for key in link.ahead]
    if ahead:
        most_s = max(-source.delay for source in ahead) / 1e9
        yield Problem(
            code="clock-ahead",
            at=state.last_at,
            message=f"clock of {spoken_for(ahead)} is {most_s:.0f} s ahead: what it sends is from the future",
            hint="synchronise the clocks of both machines; `overwatch doctor` on each shows which one is not",
            patience=STEADY,
        )


OF_THE_LINE: Final = frozenset(
    {AWAY, LOST, "telemetry-stale", "run-silent", "run-failed", "clock-ahead", "overlapping-writers"}
)
"""About telemetry that comes: without any they are not true."""
OF_THE_LOOP: Final = frozenset({"env-stalled", "env-stalled-many", STALLED, "producer-gone", "service-down"})
"""About a loop that goes on: they stand where the policy still learned after they began."""


def outliving(state: RunState, followed: Followed, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Those of some problems that are true of a run that emits nothing too."""
    for problem in problems:
        known = followed.open.get(problem.id)
        since = problem.at if known is None else known.since
        is_shutdown = problem.code in OF_THE_LOOP and since >= state.last_update_at
        if problem.code not in OF_THE_LINE and not is_shutdown:
            yield problem


TIMES: Final = 6.0
"""Of what is usual."""
LONGEST_TIMES: Final = 2.0
"""Of the longest that was: evaluations and checkpoints that are not announced come again."""
LEAST_S: Final = 8.0
FIRST_S: Final = 1800.0
"""Seconds that an announced phase may take while none of its name has ended yet."""
LEAST_GAPS: Final = 3
"""Gaps that must be known before anything is usual."""
CRITICAL_TIMES: Final = 30.0
CRITICAL_S: Final = 120.0
SILENT_S: Final = 10.0
PATIENCES: Final = 2
"""A process is gone after so many times the silence that is usual for it, if that is longer."""
GONE_S: Final = 600.0
"""Seconds for which it is reported; after that the run is taken to go on without it."""
_ILL: Final = ("failed", "lost")


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose training does not go on."""

    rank: int
    doing: str
    """What it is in, or what it did last: `in update`, `after collect`."""
    for_s: float
    usual_s: float
    at: int
    """Producer's time at which it last got on."""
    over: str = ""
    """What became of it, where it does not wait: it ended, or is silent; key of its source in `key`."""
    key: str = ""


def stalls_of(state: RunState, tick: int) -> tuple[Stall, ...]:
    """Ranks that stopped, the one that stopped first comes first: one that ended or fell silent before."""
    received: dict[int, int] = {}
    for source in state.sources.values():
        if not source.finished and not source.is_beside:
            received[source.rank] = max(received.get(source.rank, 0), source.at)
    found = (
        _stall(rank, state.phases.get(rank, {}), rhythm, received.get(rank, 0))
        for rank, rhythm in state.rhythms.items()
    )
    stalls = sorted((stall for stall in found if stall), key=lambda stall: (stall.at, stall.rank))
    first = _left_before(state, stalls, tick) if stalls else None
    return tuple(stalls if first is None else [first, *stalls])


def _left_before(state: RunState, stalls: Sequence[Stall], tick: int) -> Stall | None:
    """The rank that ended, or fell silent, before the first of these would have got on: they wait for it."""
    until = tick - int((stalls[0].for_s - 2 * stalls[0].usual_s - SLOW_S) * 1e9)
    ranks, found = {stall.rank for stall in stalls}, []
    for key, source in latest_lives(state.sources).items():
        quiet_s = (tick - source.stamp) / 1e9
        is_over = source.finished or quiet_s >= source.patience_s()
        if source.is_trainer and source.rank not in ranks and is_over and source.stamp <= until:
            found.append((source.stamp, key))
    if not found:
        return None
    key = min(found)[1]
    source = state.sources[key]
    for_s = (tick - source.stamp) / 1e9
    return Stall(
        rank=source.rank,
        doing="",
        for_s=for_s,
        usual_s=0.0,
        at=source.at,
        over=how_it_left(source, tick),
        key=key,
    )


def how_it_left(source: Source, tick: int) -> str:
    """What became of a process that left."""
    if source.ending is None:
        return f"silent for {duration((tick - source.stamp) / 1e9)} without an end record"
    return f"{source.ending.outcome}: {source.ending.reason or 'no reason given'}"


def _stall(rank: int, phases: Mapping[str, Phase], rhythm: Rhythm, now: int) -> Stall | None:
    for name, began in reversed(rhythm.open.items()):
        return _overdue(rank, name, phases.get(name), max(began, rhythm.at, rhythm.seen_at), now)
    nexts = {} if rhythm.last is None else rhythm.gaps.get(rhythm.last, {})
    if sum(len(gaps.newest_s.items) for gaps in nexts.values()) < LEAST_GAPS:
        return None
    usual_s = max(median(gaps.newest_s.items) or 0.0 for gaps in nexts.values())
    longest_s = max(gaps.longest_s for gaps in nexts.values())
    at = max(rhythm.at, rhythm.seen_at)
    for_s = (now - at) / 1e9
    if for_s <= _patience_s(usual_s, longest_s):
        return None
    doing = f"in {next(iter(nexts))}" if len(nexts) == 1 else f"after {rhythm.last}"
    return Stall(rank=rank, doing=doing, for_s=for_s, usual_s=usual_s, at=at)


def _overdue(rank: int, name: str, phase: Phase | None, at: int, now: int) -> Stall | None:
    """A pause that was announced is measured by itself; one that never ended before may take long."""
    for_s, usual_s = (now - at) / 1e9, 0.0 if phase is None else median(phase.seconds.items) or 0.0
    if for_s <= _pause_s(phase):
        return None
    return Stall(rank=rank, doing=f"in {name}", for_s=for_s, usual_s=usual_s, at=at)


def _pause_s(phase: Phase | None) -> float:
    """Seconds that an announced phase may take; the first of its name may take long."""
    known_s = [] if phase is None else phase.seconds.items
    return _patience_s(median(known_s) or 0.0, max(known_s)) if known_s else FIRST_S


def _patience_s(usual_s: float, longest_s: float) -> float:
    return max(TIMES * usual_s, LONGEST_TIMES * longest_s, LEAST_S)


def stalled(stalls: Sequence[Stall], *, is_followed: bool = False) -> Iterator[Problem]:
    """One finding: the rank that stopped first, and how many wait.

    Of a run that is followed by its files no process is known: that nothing is written is a state.
    """
    if not stalls:
        return
    first, others = stalls[0], len(stalls) - 1
    if is_followed:
        words = f"nothing was written for {duration(first.for_s)}, usual {duration(first.usual_s)}"
        hint = "files show no process: it may be done, paused or killed; follow --pid watches a process"
        yield _about_run("run-silent", "info", first.at, (words, hint))
        return
    waiting = "" if not others else f"; {others} other {'rank' if others == 1 else 'ranks'} stopped after it"
    worse = first.over or first.for_s >= max(CRITICAL_TIMES * first.usual_s, CRITICAL_S)
    stated = f"{first.doing} for {duration(first.for_s)}, usually {duration(first.usual_s)}"
    yield Problem(
        code=STALLED,
        severity="critical" if worse else "warning",
        subject=f"rank {first.rank}",
        at=first.at,
        message=f"rank {first.rank} {first.over}{waiting}"
        if first.over
        else f"training hangs: rank {first.rank} {stated}{waiting}",
        hint="look at its log and its machine: it ended, and the others wait for it"
        if first.over
        else "its process lives: look at its stack (py-spy dump), at the others' logs, at storage",
        symptoms=others,
        absorbs=("producer-gone", STALLED) if first.over else (STALLED,),
    )


def gone_sources(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of processes that left a run which goes on without them: killed, failed, or silent without an end.

    Each is among them for a limited time only.
    """
    holder = holder_of(state.sources)
    return tuple(
        key
        for key, source in latest_lives(state.sources).items()
        if not (source.finished and key == holder) and _is_gone(state, source, tick)
    )


def _is_gone(state: RunState, source: Source, tick: int) -> bool:
    if source.ending is not None:
        return source.ending.outcome in _ILL and (tick - source.stamp) / 1e9 <= GONE_S
    if state.paused_at is not None:
        return False
    patience_s = max(SILENT_S, PATIENCES * silence_of(state, source))
    return patience_s < (tick - max(source.stamp, state.back_stamp)) / 1e9 <= patience_s + GONE_S


def gone_producers(state: RunState, keys: Sequence[str], tick: int) -> Iterator[Problem]:
    """A finding for each service, and one for all others: a run loses and gains workers by right.

    What was silent when `keys` were found at `tick` may have reported since.
    """
    sources = [state.sources[key] for key in keys if state.sources[key].stamp <= tick]
    for source in sources:
        if source.role in SCOPE_OF_ROLE:
            name = source.name.removesuffix(" 0")
            yield Problem(
                code="service-down",
                severity="critical" if source.role in LEARNS else "warning",
                scope="service",
                subject=name,
                at=source.at,
                message=f"{name} {how_it_left(source, tick)}, while the run goes on",
                hint="start it again; what was accepted, saved and published is still there",
                patience=STEADY,
            )
    gone = sorted(
        (one for one in sources if one.role not in SCOPE_OF_ROLE), key=lambda one: (one.stamp, one.name)
    )
    if not gone:
        return
    first, others = gone[0], len(gone) - 1
    names = f"{first.speaker} and {others} more" if others else first.speaker
    grave = any(one.is_trainer or (one.ending is not None and one.ending.outcome == "failed") for one in gone)
    yield Problem(
        code="producer-gone",
        severity="warning" if grave else "info",
        at=first.at,
        message=f"{names} {how_it_left(first, tick)}, while the run goes on",
        hint="look at its process and its log; its values are shown as they were",
        symptoms=others,
        patience=STEADY,
    )
