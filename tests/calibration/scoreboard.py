"""What the rules make of the library of real trainings: found, how soon, and how often for nothing.

Owns how a series is judged: a broken run is found strictly by a finding that its kind's row names, at least
so severe, after the fault began; leniently by any warning about learning. What opens in a healthy run, or
before the fault, is a false alarm. `python -m tests.calibration.scoreboard` prints the
figures of a half and writes the page.
"""

import argparse
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.events import Measured, Origin, Record
from tests.calibration.library.kinds import BROKEN, HEALTHY, KINDS, MEANS, Kind
from tests.calibration.library.series import FOLDER, HALVES, Case, Series, kept, read
from tests.calibration.recorded import recordings
from tests.calibration.replaying import Arrival, Seen, Watched, replay, ticks

PEERS: Final = FOLDER / "peers.json"
"""What detectors of others found, by run and peer: see `peers`."""
PAGE: Final = Path(__file__).parents[2] / "docs/diagnosis/real-runs.md"
NOT_OF_LEARNING: Final = frozenset(
    {
        "policy-update-time", "recompiles", "throughput-regression", "training-stalled", "telemetry-stale",
        "host-memory", "disk-full", "io-starvation", "straggler", "oom-forecast", "producer-gone", "run-lost",
        "checkpoint-slow", "checkpoint-stalled", "checkpoints-stopped",
    }
)  # fmt: skip
"""What is about time and machines: right or not, it does not name what a policy does."""
WORKERS: Final = 2


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A finding that was a warning or worse."""

    rule: str
    is_critical: bool
    is_false: bool
    """It opened where nothing was wrong."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What became of one series."""

    case: Case
    outcome: str
    updates: int
    healthy_updates: int
    """All of a healthy run, those before the fault of a broken one."""
    strict: dict[str, int]
    """Rules that found it strictly, and after how many updates."""
    lenient: int | None
    """Updates until anything about learning was found."""
    alarms: tuple[Alarm, ...]

    @property
    def kind(self) -> Kind:
        """Its row."""
        return KINDS[self.case.kind]

    @property
    def latency(self) -> int | None:
        """Updates from the fault to the first strict finding."""
        return min(self.strict.values(), default=None)

    @property
    def is_harmed(self) -> bool:
        """Whether it is broken and its return shows it; what learned all the same is reported apart."""
        return self.kind.is_broken and self.outcome != "learned"


def arrivals(series: Series) -> Iterator[Arrival]:
    """The series as a collector received it."""
    numbers: Counter[int] = Counter()
    origins = {
        rank: Origin(run_id=series.case.name, epoch=f"library-{rank}", rank=rank, ours=True)
        for rank in {moment.rank for moment in series.moments}
    }
    for moment in series.moments:
        records = []
        for event in moment.events:
            numbers[moment.rank] += 1
            records.append(Record(origin=origins[moment.rank], event=event, seq=numbers[moment.rank]))
        yield series.start_ns + moment.after_ns, records


def score(path: Path) -> Score:
    """Judge one series."""
    series, found = read(path), Watched()
    kind = KINDS[series.case.kind]
    began = None if series.began_ns is None else series.start_ns + series.began_ns
    updates = before = 0
    with np.errstate(all="ignore"):
        for state, judged, tick in ticks(arrivals(series)):
            found.note(state, judged, tick)
            updates = state.updates
            before = updates if began is None or tick < began else before
    strict, lenient = dict[str, int](), list[int]()
    for seen in found.found:
        when = seen.at_least(kind.least)
        if began is not None and when is not None and when[0] >= began and names(kind, seen):
            strict.setdefault(rule_of(seen), when[1] - before)
        when = seen.at_least("warning")
        if began is not None and when is not None and when[0] >= began and seen.code not in NOT_OF_LEARNING:
            lenient.append(when[1] - before)
    return Score(
        case=series.case,
        outcome=series.outcome,
        updates=updates,
        healthy_updates=before,
        strict=strict,
        lenient=min(lenient, default=None),
        alarms=tuple(_alarms(found.found, began)),
    )


def names(kind: Kind, seen: Seen) -> bool:
    """Whether a finding is the cause, or the signal that is off; a collapse names the returns it takes."""
    codes = {seen.code, f"{seen.code}:{seen.subject}"}
    if seen.code == "policy-collapse" and "returns fall" in seen.message:
        codes.add("reward-collapse")
    return not codes.isdisjoint(kind.findings)


def rule_of(seen: Seen) -> str:
    """What found it; a slow drift by its row."""
    return f"{seen.code}:{seen.subject}" if seen.code == "slow-drift" else seen.code


def _alarms(found: Iterable[Seen], began: int | None) -> Iterator[Alarm]:
    for seen in found:
        when, critical = seen.at_least("warning"), seen.at_least("critical")
        if when is not None:
            is_false = began is None or when[0] < began
            is_critical = critical is not None and (not is_false or began is None or critical[0] < began)
            yield Alarm(rule=rule_of(seen), is_critical=is_critical, is_false=is_false)


def scores(half: str) -> list[Score]:
    """Judge a half, on two cores."""
    with ProcessPoolExecutor(WORKERS) as pool:
        return list(pool.map(score, kept(half), chunksize=4))


def page(halves: dict[str, list[Score]]) -> str:
    """The whole page."""
    lines = [_HEAD]
    for half, judged in halves.items():
        if judged:
            lines += [f"## The {half} half", "", *_half(judged), ""]
    lines += ["## Recordings of before", "", *_table(["run", "updates", "critical", "warning"], _recorded())]
    return "\n".join(lines) + "\n"


_HEAD: Final = """<!-- Generated by `make diagnosis` from tests/calibration/runs/. -->
# Real trainings: what is found, how soon, and how often for nothing

Each run is a real training on a CPU that reported through the SDK or an adapter as a user's would, judged
as a collector judges it. `make real-runs` trains them; what is done to each, and what a strict finding of it
is, is a table of `tests/calibration/library/kinds.toml`. A run is *harmed* when its return ended nearer to a
random policy's than to a known good one's; broken runs that learned all the same are reported apart. Latency
is in updates from the moment the fault began. A false alarm is a warning or worse in a healthy run, or before
the fault. Settings of the sealed half are drawn from the commit that froze the rules.
"""


def _half(judged: Sequence[Score]) -> list[str]:
    lines = [*_figures(judged), "", "### Broken runs by kind", ""]
    groups = _grouped(judged, lambda one: one.case.kind)
    lines += _table(
        [
            "kind",
            "runs",
            "harmed",
            "strict of harmed",
            "latency",
        ],
        ([f"`{kind.name}`", *_broken(groups[kind.name])] for kind in BROKEN if kind.name in groups),
    )
    lines += ["", "### Healthy runs by kind", ""]
    lines += _table(
        ["kind", "runs", "learned", "updates", "with an alarm", "warning", "critical"],
        ([f"`{kind.name}`", *_healthy(groups[kind.name])] for kind in HEALTHY if kind.name in groups),
    )
    lines += ["", "### By algorithm", ""]
    lines += _table(
        ["algorithm", "harmed", "strict", "latency", "healthy updates", "false warning"],
        (
            [f"`{name}`", *_algorithm(group)]
            for name, group in sorted(_grouped(judged, _algorithm_of).items())
        ),
    )
    if compared := list(_peers(judged)):
        lines += ["", "### Beside others", "", _BESIDE, ""]
        lines += _table(
            ["", "strict of harmed", "latency", "false alarms per 1,000", "healthy runs with one"], compared
        )
    lines += ["", "### By rule", ""]
    return lines + _table(["rule", "finds", "it alone", "false"], _rules(judged))


_BESIDE: Final = (
    "The same numbers, an update at a time, into the live mode of each peer; any severity counts."
)
TAKEN: Final[dict[str, tuple[str, ...]]] = {
    "entropy": ("entropy", "entropy_nats"), "kl": ("kl_divergence",), "reward": ("return",),
    "loss": ("total_loss", "loss"), "eval_score": ("eval_return",),
    **{
        name: (name,)
        for name in (
            "reward_std", "advantage_std", "grad_norm", "clip_fraction", "value_loss", "explained_variance",
            "learning_rate",
        )
    },
}  # fmt: skip
"""What peers read, and the rows that have it."""


def updates_of(series: Series) -> tuple[list[int], list[dict[str, float]]]:
    """How many updates there were with each record, and its numbers by the names that peers read."""
    counts, rows, newest, count = list[int](), list[dict[str, float]](), None, 0
    for event in (event for moment in series.moments for event in moment.events if moment.rank == 0):
        if isinstance(event, Measured) and event.scope is Scope.POLICY:
            values = {
                BY_NAME[name].short: column.first()
                for name, column in event.values.items()
                if name in BY_NAME
            }
            found = {
                name: next((values[one] for one in of if one in values), None) for name, of in TAKEN.items()
            }
            rows.append({name: value for name, value in found.items() if value is not None})
            count, newest = count + event.updates(newest), event.index
            counts.append(count)
    return counts, rows


def ask_peers(python: Path) -> None:
    """Ask the detectors that this Python has, and keep what they found."""
    paths = [path for half in HALVES for path in kept(half)]
    asked = [updates_of(read(path)) for path in paths]
    lines = "\n".join(json.dumps(rows) for _, rows in asked)
    command = [str(python), str(Path(__file__).with_name("peers.py"))]
    answered = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    found = {
        path.stem: {
            peer: [(counts[number], code, severity) for number, code, severity in alarms]
            for peer, alarms in json.loads(line).items()
        }
        for path, (counts, _), line in zip(paths, asked, answered.splitlines(), strict=True)
    }
    PEERS.write_text(json.dumps(found, sort_keys=True), encoding="utf-8")


def _peers(judged: Sequence[Score]) -> Iterator[list[str]]:
    """Each peer's figures, below our own on the runs that it was asked about."""
    known = json.loads(PEERS.read_text(encoding="utf-8")) if PEERS.exists() else {}
    asked = [one for one in judged if one.case.name in known]
    if not asked:
        return
    ours = {one.case.name: _ours(one) for one in asked}
    yield _beside("Overwatch", asked, ours)
    for peer in sorted({peer for answers in known.values() for peer in answers}):
        yield _beside(peer, asked, {one.case.name: _theirs(one, known[one.case.name][peer]) for one in asked})


def _ours(one: Score) -> tuple[int | None, int]:
    return one.latency, sum(alarm.is_false for alarm in one.alarms)


def _theirs(one: Score, found: list[tuple[int, str, str]]) -> tuple[int | None, int]:
    """Updates to its first strict finding, and its false alarms."""
    bad = [(update, code) for update, code, severity in found if severity in ("warning", "critical")]
    before = one.healthy_updates if one.kind.is_broken else one.updates + 1
    strict = [
        update - before
        for update, code in bad
        if update >= before and set(MEANS.get(code, ())) & set(one.kind.findings)
    ]
    return min(strict, default=None), sum(update < before for update, _ in bad)


def _beside(name: str, asked: Sequence[Score], found: dict[str, tuple[int | None, int]]) -> list[str]:
    harmed = [found[one.case.name][0] for one in asked if one.is_harmed]
    hits = [latency for latency in harmed if latency is not None]
    false = sum(alarms for _, alarms in found.values())
    healthy = [found[one.case.name][1] for one in asked if not one.kind.is_broken]
    spread = f"median {np.median(hits):.0f}, p90 {np.quantile(hits, 0.9):.0f}" if hits else "–"
    rate = _rate(false, sum(one.healthy_updates for one in asked))
    return [name, _part(len(hits), len(harmed)), spread, rate, _part(sum(map(bool, healthy)), len(healthy))]


def _algorithm_of(one: Score) -> str:
    return one.case.algorithm


def _grouped(judged: Iterable[Score], key: Callable[[Score], str]) -> dict[str, list[Score]]:
    groups: dict[str, list[Score]] = defaultdict(list)
    for one in judged:
        groups[key(one)].append(one)
    return groups


def _figures(judged: Sequence[Score]) -> list[str]:
    harmed = [one for one in judged if one.is_harmed]
    others = [one for one in judged if one.kind.is_broken and not one.is_harmed]
    healthy = [one for one in judged if not one.kind.is_broken]
    strict, lenient = (sum(found(one) is not None for one in harmed) for found in (_latency, _lenient))
    false = [alarm for one in judged for alarm in one.alarms if alarm.is_false]
    updates = sum(one.healthy_updates for one in judged)
    return _table(
        ["", ""],
        [
            [
                "runs",
                f"{len(judged)}: {len(healthy)} healthy, {len(harmed)} harmed, {len(others)} that learned",
            ],
            ["harmed, found strictly", _part(strict, len(harmed))],
            ["harmed, found leniently", _part(lenient, len(harmed))],
            ["latency of strict findings, updates", _spread(harmed)],
            [
                "broken and learned, found strictly",
                _part(sum(_latency(one) is not None for one in others), len(others)),
            ],
            ["healthy updates", f"{updates:,}"],
            ["false warnings per 1,000", _rate(sum(not one.is_critical for one in false), updates)],
            ["false criticals per 1,000", _rate(sum(one.is_critical for one in false), updates)],
            ["where no healthy run learned", _unlearned(healthy)],
            ["healthy runs with an alarm", _part(sum(bool(one.alarms) for one in healthy), len(healthy))],
        ],
    )


def _unlearned(healthy: Sequence[Score]) -> str:
    """Where no healthy run learned, so that the return shows nothing of a broken one."""
    pairs = _grouped(healthy, lambda one: f"{one.case.algorithm} on {one.case.world}")
    none = [name for name, group in pairs.items() if all(one.outcome != "learned" for one in group)]
    return ", ".join(sorted(none)) or "none"


def _latency(one: Score) -> int | None:
    return one.latency


def _lenient(one: Score) -> int | None:
    return one.lenient


def _part(count: int, of: int) -> str:
    return f"{count} of {of} ({count / of:.0%})" if of else "–"


def _rate(count: int, updates: int) -> str:
    return f"{1000 * count / updates:.2f} ({count})" if updates else "–"


def _spread(group: Iterable[Score]) -> str:
    found = [one.latency for one in group if one.latency is not None]
    return f"median {np.median(found):.0f}, p90 {np.quantile(found, 0.9):.0f}" if found else "–"


def _broken(group: Sequence[Score]) -> list[str]:
    harmed = [one for one in group if one.is_harmed]
    return [
        str(len(group)),
        str(len(harmed)),
        _count(sum(bool(one.strict) for one in harmed), len(harmed)),
        _spread(group),
    ]


def _count(count: int, of: int) -> str:
    return f"{count}/{of}" if of else "–"


def _healthy(group: Sequence[Score]) -> list[str]:
    alarms = [alarm for one in group for alarm in one.alarms]
    return [
        str(len(group)),
        str(sum(one.outcome == "learned" for one in group)),
        f"{sum(one.updates for one in group):,}",
        str(sum(bool(one.alarms) for one in group)),
        str(sum(not one.is_critical for one in alarms)),
        str(sum(one.is_critical for one in alarms)),
    ]


def _algorithm(group: Sequence[Score]) -> list[str]:
    harmed = [one for one in group if one.is_harmed]
    false = [alarm for one in group for alarm in one.alarms if alarm.is_false]
    updates = sum(one.healthy_updates for one in group)
    return [
        str(len(harmed)),
        _count(sum(bool(one.strict) for one in harmed), len(harmed)),
        _spread(harmed),
        f"{updates:,}",
        _rate(sum(not one.is_critical for one in false), updates),
    ]


def _rules(judged: Sequence[Score]) -> Iterator[list[str]]:
    """Rules by what they find and what each costs."""
    finds, alone = Counter[str](), Counter[str]()
    for one in judged:
        finds.update(one.strict.keys())
        alone.update(one.strict.keys() if len(one.strict) == 1 else ())
    false = [alarm for one in judged for alarm in one.alarms if alarm.is_false]
    cost = Counter(one.rule for one in false)
    for rule in sorted({*finds, *cost}, key=lambda rule: (-finds[rule], rule)):
        counts = (finds[rule], alone[rule], cost[rule])
        yield [f"`{rule}`", *map(str, counts)]


def _recorded() -> Iterator[list[str]]:
    for recording in recordings():
        replayed = replay(recording)
        counts = (len(replayed.of(severity)) for severity in ("critical", "warning"))
        yield [f"`{recording.name}`", f"{replayed.updates:,}", *map(str, counts)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES, help="only this; else both, into the page")
    parser.add_argument("--missed", action="store_true", help="list what was not found, and false alarms")
    parser.add_argument("--peers", type=Path, help="a Python that has detectors of others; asks them anew")
    given = parser.parse_args()
    if given.peers is not None:
        ask_peers(given.peers)
    halves = {
        half: scores(half) for half in HALVES if given.half in (None, half) and (FOLDER / half).exists()
    }
    for half, judged in halves.items():
        print(f"{half}\n" + "\n".join(_half(judged)))
        if given.missed:
            for one in judged:
                print(json.dumps(_line(one)))
    if given.half is None:
        PAGE.write_text(page(halves), encoding="utf-8")


def _line(one: Score) -> dict[str, object]:
    false = [f"{alarm.rule}{'!' if alarm.is_critical else ''}" for alarm in one.alarms if alarm.is_false]
    others = [f"{alarm.rule}{'!' if alarm.is_critical else ''}" for alarm in one.alarms if not alarm.is_false]
    return {
        "run": one.case.name,
        "outcome": one.outcome,
        "strict": one.strict,
        "false": false,
        "others": others,
    }


if __name__ == "__main__":
    main()
