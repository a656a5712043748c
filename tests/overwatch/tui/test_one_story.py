"""Header, board and alarms state one thing: no tick of any run has a contradiction between them."""

import heapq
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.simulate import SECOND, Script, Settings, Teller, parse_fault
from overwatch.snapshot import Finding, Snapshot
from overwatch.tui import once
from overwatch.tui.panels.alarms import on_rail
from tests.overwatch.simulate.runs import START

RANK = {"critical": 0, "warning": 1, "info": 2, "ok": 3}
WORDS = {"critical": "CRIT", "warning": "WARN", "info": "INFO", "ok": "OK"}
_EVERY = 2
"""Ticks between two that are looked at."""
_ALARM = re.compile(r"^\d (CRIT|WARN) ")


def snapshots(seconds: int, *runs: Settings) -> Iterator[Snapshot]:
    """What is shown of these runs in one collector, for so long."""
    reported = (
        [
            (one.at, place, one.body)
            for one in Teller(run.run_id, f"epoch-{place}").report(Script(run, START).moments())
        ]
        for place, run in enumerate(runs)
    )
    fold, waiting, tick = Fold(), list[Batch](), next_tick(START)
    for sequence, (at, _, body) in enumerate(heapq.merge(*reported), start=1):
        while tick < at:
            yield from _shown(fold, tick, waiting)
            tick, waiting = tick + FAST_NS, []
        waiting.append(Batch(sequence=sequence, stamp=at + sequence, signal=Signal.LOGS, body=body))
    while tick <= START + seconds * SECOND:
        yield from _shown(fold, tick, waiting)
        tick, waiting = tick + FAST_NS, []


def _shown(fold: Fold, tick: int, batches: list[Batch]) -> Iterator[Snapshot]:
    if tick // FAST_NS % _EVERY:
        fold.take(tick, batches)
    else:
        yield from fold.advance(tick, batches, ()).snapshots.values()


def run(name: str, seconds: int, *faults: str) -> Settings:
    """A small run with what goes wrong in it."""
    planned = tuple(parse_fault(fault) for fault in faults)
    return Settings(
        gpus=2, envs=3, slots=1, rate_hz=2.0, seconds=seconds, seed=3, faults=planned, run_id=name
    )


STORM = run("storm", 34, "cull-storm@4", "thermal-throttle@8", "crash-storm@20", "env-nan@24")
SICK = run("sick", 44, "policy-collapse@24")
LOST = run("lost", 30, "kl-high@22", "stale@28")
FAILED = run("failed", 30, "env-crash@22", "run-failed@28")
CALM = run("calm", 30)
SCENES = {
    "storm": (38, STORM),
    "ended sick": (48, SICK),
    "lost": (130, LOST),
    "two runs": (33, FAILED, CALM),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scene", SCENES)
def test_no_tick_contradicts_itself(scene: str) -> None:
    """The verdict's severity and counts are those of the open alarms; each is where it is shown to be."""
    seconds, *runs = SCENES[scene]
    seen: dict[str, list[str]] = {}
    stated = set[tuple[str, str]]()
    for shown in snapshots(seconds, *runs):
        found = contradictions(shown)
        if (shown.run.run_id, shown.verdict.text) not in stated:
            stated.add((shown.run.run_id, shown.verdict.text))
            found += on_the_screen(shown)
        for one in found:
            seen.setdefault(one, []).append(f"{shown.run.run_id} at {shown.time - START / 1e9:.1f} s")

    assert {one: (len(when), when[0]) for one, when in seen.items()} == {}
    assert len(stated) > 3


def contradictions(shown: Snapshot) -> list[str]:
    """What one part of a snapshot denies of another."""
    verdict, found = shown.verdict, list[str]()
    opened = [one for one in shown.findings if one.cleared_at is None and not one.acknowledged]
    alarms = [one for one in opened if one.severity != "info"]
    worst = min((RANK[one.severity] for one in opened), default=RANK["ok"])
    if alarms and RANK[verdict.severity] > worst:
        found.append(f"the header is {verdict.severity}, {alarms[0].id} is {alarms[0].severity}")
    if not opened and RANK[verdict.severity] < RANK["info"] and shown.link.state != "catching_up":
        found.append(f"the header is {verdict.severity} and there is no alarm")
    if alarms and Counter(one.severity for one in opened) != verdict.counts:
        found.append(f"the header counts {verdict.counts}, open are {sorted(one.id for one in opened)}")
    for one in alarms:
        found += _denied(shown, one)
    return found + _of_the_board(shown)


def _denied(shown: Snapshot, alarm: Finding) -> list[str]:
    """What of the board, the pulse and the lanes looks well although an alarm names it."""
    name = alarm.subject.id
    if alarm.subject.scope == "env":
        row = next((one for one in shown.envs if str(one.env_id) == name), None)
        return [f"{alarm.id}: its row is {row and row.status}"] if row is None or row.status == "ok" else []
    if alarm.subject.scope == "policy" and name is not None and alarm.code.startswith("policy-"):
        reading = shown.policy.get(name)
        is_well = reading is None or reading.status == "ok"
        return [f"{alarm.id}: its reading is {reading and reading.status}"] if is_well else []
    if alarm.subject.scope == "gpu" and name not in {lane.gpu_id for lane in shown.system.gpus}:
        return [f"{alarm.id}: there is no such lane"]
    return []


def _of_the_board(shown: Snapshot) -> list[str]:
    """Statuses of rows, of groups and of the whole, and how many the header calls healthy."""
    counts, found = Counter(shown.board.counts), list[str]()
    groups = sum((Counter(group.counts) for group in shown.board.groups), Counter[str]())
    if not counts == groups == Counter(env.status for env in shown.envs):
        found.append("the board counts otherwise than its rows")
    healthy = re.search(r"(\d+)(?: of \d+)? env\b.* healthy", shown.verdict.text)
    if healthy is not None and int(healthy[1]) != counts["ok"]:
        found.append(f"the header calls {healthy[1]} envs healthy, the board {counts['ok']}")
    crashed = {str(env.env_id) for env in shown.envs if env.status == "crashed"}
    if (
        crashed
        and shown.verdict.severity == "ok"
        and not any(one.subject.id in crashed for one in shown.findings)
    ):
        found.append("the board has a crashed env of which neither header nor alarms know")
    if shown.link.state == "ended" and (shown.run.outcome or "") not in shown.verdict.text.lower():
        found.append(f"the run {shown.run.outcome}, the header does not have it")
    return found


def on_the_screen(shown: Snapshot) -> list[str]:
    """The same of the drawn frame: its verdict line against the lines of its rail."""
    lines = once(shown, "text").splitlines()
    verdict = next(line for line in lines[1:] if line.strip())
    found = []
    drawn = next(
        (line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in WORDS.values()), ""
    )
    if drawn != WORDS[shown.verdict.severity]:
        found.append(f"the screen's verdict is {drawn}, the snapshot's {shown.verdict.severity}: {verdict}")
    rail = [line for line in lines if _ALARM.match(line) and "cleared" not in line]
    alarms = [one for one in on_rail(shown) if one.cleared_at is None and one.severity != "info"]
    if bool(rail) != bool(alarms) or (drawn == "OK" and rail):
        found.append(f"the rail has {len(rail)} lines for {len(alarms)} alarms under {drawn}")
    return found
