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


TOGETHER_NS: Final = 5_000_000_000
"""Two lives overlap when the older sent this long after the newer began, by producers' time."""


def overlapping(state: RunState, tick: int) -> tuple[str, ...]:
    """Keys of the sources that share a role and a rank with another one that lives, at `tick`."""
    lives: dict[str, list[str]] = {}
    for key in state.sources:
        lives.setdefault(key.rpartition("/")[0], []).append(key)
    found: list[str] = []
    for keys in lives.values():
        there = {key: state.sources[key] for key in keys if len(keys) > 1}
        live = {key: source for key, source in there.items() if source.high and source.is_live(tick)}
        for key, one in live.items():
            others = (other for other in live.values() if other is not one)
            shared = (min(one.at, other.at) - max(one.first_at, other.first_at) for other in others)
            found += [key] if max(shared, default=0) >= TOGETHER_NS else []
    return tuple(found)


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
    live = (source for source in holders.values() if source.stamp == newest)
    latest = min(live, key=Source.lag_s, default=None)
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
        ahead=tuple(
            key
            for key, source in state.sources.items()
            if ahead_s(source) is not None and source.is_live(tick)
        ),
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
    was_away = state.back_stamp > newest
    if _quiet_s(state, newest, tick) < SLOW_S and not was_away:
        return "catching_up" if lag_s >= OUTAGE_S else "live"
    if not holders:
        return "lost"
    # The life that is least overdue: another may have been replaced, or be gone.
    calmest = min(
        holders.values(),
        key=lambda source: _quiet_s(state, source.stamp, tick) - silence_of(state, source),
    )
    quiet_s, patience_s = _quiet_s(state, calmest.stamp, tick), silence_of(state, calmest)
    if quiet_s >= patience_s:
        is_lost = quiet_s >= max(LOST_S, LOST_TIMES * calmest.allowed_s(), 2 * patience_s)
        is_open = state.origin.service == FOLLOWER or not calmest.promised
        return "silent" if is_open else "lost" if is_lost else "stale"
    if lag_s >= OUTAGE_S and not was_away:
        return "catching_up"
    is_slow = calmest.promised and quiet_s >= max(SLOW_S, calmest.allowed_s()) and patience_s <= UNKNOWN_S
    return "slow" if was_away or is_slow else "live"


def _quiet_s(state: RunState, stamp: int, tick: int) -> float:
    """Seconds since a record that was received at `stamp`, or since the collector came back."""
    return (tick - max(stamp, state.back_stamp)) / 1e9


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
            patience_s = max(patience_s, _pause_s([] if phase is None else phase.seconds.items))
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
    start, anchors = before.now if before.received else tick, before.anchors
    if anchors.keys() != state.sources.keys():
        anchors = {key: anchors.get(key, start - source.at) for key, source in state.sources.items()}
    reported = max((anchors[key] + source.at for key, source in state.sources.items()), default=start)
    lead, received = (reported, tick) if reported > before.lead else (before.lead, before.received)
    now = max(before.now, lead + min(max(0, tick - received), RUNS_ON_NS))
    return DataClock(now=now, lead=lead, received=received, anchors=anchors)


AWAY: Final = "collector-away"
LOST: Final = "run-lost"
STALLED: Final = "training-stalled"
_LOOK: Final = "look at the trainer's process and its log"


def line_problems(state: RunState, link: LinkJudgement) -> Iterator[Problem]:
    """What is wrong with a run that emits nothing, or nothing any more."""
    code, severity, at, hint, factors = LOST, "critical", state.last_stamp, _LOOK, tuple[str, ...]()
    age, last = duration(link.data_age_s), link.last_from or "no producer"
    silent = f"no telemetry for {age}; last record from {last}{_first_silent(state)}"
    match link.state:
        case "lost" if state.finished is None:
            message = ", ".join(("LOST: no end record", *_reached(state))) + _first_silent(state)
        case "lost" if state.finished is not None:
            message, at = f"LOST: {state.finished.reason or 'no end record'}", state.finished.at
            factors = tuple(_reached(state))
        case "stale":
            code, message = "telemetry-stale", f"{silent}; process state unknown"
        case "silent" if state.origin.service == FOLLOWER:
            code, severity, message = "run-silent", "warning", f"{silent}; its files are not followed now"
            hint = "start `overwatch follow` again: it goes on from there"
        case "silent":
            # It may as well have ended.
            code, severity = "run-silent", "warning"
            message = f"{silent}; it sends no end record: finished or killed"
            hint = f"{_LOOK}; a producer that emits overwatch.run_finished shows its end"
        case "ended" if state.finished is not None and state.finished.outcome == "failed":
            code, at, hint = "run-failed", state.finished.at, "read the trainer's log"
            message = f"FAILED: {state.finished.reason or 'no reason given'}"
        case _:
            return
    yield Problem(code=code, severity=severity, at=at, message=message, hint=hint, factors=factors)


def _first_silent(state: RunState) -> str:
    """Which rank stopped well before the others, whose silence may be that they wait for it."""
    team = sorted(team_of(state.sources).values(), key=lambda source: source.stamp)
    if len(team) < 2:
        return ""
    first, before_s = team[0], (team[1].stamp - team[0].stamp) / 1e9
    if before_s < max(SLOW_S, INTERVALS * (first.interval_s() or 0.0)):
        return ""
    why = "" if first.ending is None else f" ({how_it_left(first, 0)})"
    return f"; {first.speaker} stopped {duration(before_s)} before the others{why}"


def _reached(state: RunState) -> Iterator[str]:
    """The last phase that ended, and what the run can go on from."""
    phases = [(phase.at, name) for of_rank in state.phases.values() for name, phase in of_rank.items()]
    number = "" if state.update is None else f" {state.update:,}"
    if phases or number:
        yield (
            f"last phase {max(phases, key=lambda seen: seen[0])[1]}{number}"
            if phases
            else f"last update{number}"
        )
    if state.checkpoint is None:
        yield "no checkpoint seen"
    else:
        before = duration(max(0.0, (state.last_at - state.checkpoint.at) / 1e9), coarse=True)
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
    """What it is in, or what it did last: `in update`, `after collect`; or what became of it, where it does
    not wait: it ended, or is silent."""
    for_s: float
    usual_s: float
    at: int
    """Producer's time at which it last got on."""
    key: str = ""
    """Of its source, where it ended or is silent."""


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
    stalls = sorted(filter(None, found), key=lambda stall: (stall.at, stall.rank))
    if not stalls:
        return ()
    # The others wait for a rank that left before the first of these would have got on.
    until = tick - int((stalls[0].for_s - 2 * stalls[0].usual_s - SLOW_S) * 1e9)
    ranks = {stall.rank for stall in stalls}
    left = [
        (source.stamp, key)
        for key, source in latest_lives(state.sources).items()
        if source.is_trainer and source.rank not in ranks and source.stamp <= until
        if source.finished or (tick - source.stamp) / 1e9 >= source.patience_s()
    ]
    for stamp, key in sorted(left)[:1]:
        source, for_s = state.sources[key], (tick - stamp) / 1e9
        over = how_it_left(source, tick)
        stalls.insert(0, Stall(rank=source.rank, doing=over, for_s=for_s, usual_s=0.0, at=source.at, key=key))
    return tuple(stalls)


def how_it_left(source: Source, tick: int) -> str:
    """What became of a process that left."""
    if source.ending is None:
        return f"silent for {duration((tick - source.stamp) / 1e9)} without an end record"
    return f"{source.ending.outcome}: {source.ending.reason or 'no reason given'}"


def _stall(rank: int, phases: Mapping[str, Phase], rhythm: Rhythm, now: int) -> Stall | None:
    """A pause that was announced is measured by itself, what follows on a step by what usually does."""
    at, name = max(rhythm.at, rhythm.seen_at), next(reversed(rhythm.open), None)
    if name is not None:
        known_s = phases[name].seconds.items if name in phases else []
        at, doing, usual_s = max(at, rhythm.open[name]), f"in {name}", median(known_s) or 0.0
        patience_s = _pause_s(known_s)
    else:
        nexts = {} if rhythm.last is None else rhythm.gaps.get(rhythm.last, {})
        if sum(len(gaps.newest_s.items) for gaps in nexts.values()) < LEAST_GAPS:
            return None
        doing = f"in {next(iter(nexts))}" if len(nexts) == 1 else f"after {rhythm.last}"
        usual_s = max(median(gaps.newest_s.items) or 0.0 for gaps in nexts.values())
        patience_s = _patience_s(usual_s, max(gaps.longest_s for gaps in nexts.values()))
    for_s = (now - at) / 1e9
    return Stall(rank=rank, doing=doing, for_s=for_s, usual_s=usual_s, at=at) if for_s > patience_s else None


def _pause_s(known_s: list[float]) -> float:
    """Seconds that an announced phase may take; the first of its name may take long."""
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
    for_s, usual = duration(first.for_s), duration(first.usual_s)
    if is_followed:
        message = f"nothing was written for {for_s}, usual {usual}"
        hint = "files show no process: it may be done, paused or killed; follow --pid watches a process"
        yield Problem(code="run-silent", severity="info", at=first.at, message=message, hint=hint)
        return
    waiting = "" if not others else f"; {others} other {'rank' if others == 1 else 'ranks'} stopped after it"
    worse = first.key or first.for_s >= max(CRITICAL_TIMES * first.usual_s, CRITICAL_S)
    message = f"training hangs: rank {first.rank} {first.doing} for {for_s}, usually {usual}{waiting}"
    hint = "its process lives: look at its stack (py-spy dump), at the others' logs, at storage"
    if first.key:
        message = f"rank {first.rank} {first.doing}{waiting}"
        hint = "look at its log and its machine: it ended, and the others wait for it"
    yield Problem(
        code=STALLED,
        severity="critical" if worse else "warning",
        subject=f"rank {first.rank}",
        at=first.at,
        message=message,
        hint=hint,
        symptoms=others,
        absorbs=("producer-gone", STALLED) if first.key else (STALLED,),
    )


def gone_sources(state: RunState, tick: int) -> Iterator[str]:
    """Keys of processes that left a run which goes on without them: killed, failed, or silent without an end.

    Each is among them for a limited time only.
    """
    holder = holder_of(state.sources)
    for key, source in latest_lives(state.sources).items():
        for_s, patience_s = (tick - source.stamp) / 1e9, -math.inf
        if source.ending is None:
            patience_s = max(SILENT_S, PATIENCES * silence_of(state, source))
            for_s = math.inf if state.paused_at is not None else _quiet_s(state, source.stamp, tick)
        elif source.ending.outcome not in _ILL or key == holder:
            continue
        if patience_s < for_s <= max(patience_s, 0.0) + GONE_S:
            yield key


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
