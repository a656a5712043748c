"""What happened to one env's seeds, newest first: moves with what decided them, gates, and a crash.

A gate that decided a move is told in the move's line; one that nothing followed has a line of its own. How a
slot is cleaned up after a cull goes by itself, and its slot shows it: those moves are left out.
Pure; must not know which env is selected, or how many lines there is room for.
"""

from collections.abc import Sequence
from typing import Final

from overwatch.catalog.stages import Life, of_life
from overwatch.projection.text import safe
from overwatch.snapshot import SeedEvent
from overwatch.state.feed import CRASH, GATE, MOVE, measured
from overwatch.state.run import Entry

CLEANING: Final = frozenset(stage.label for stage in of_life(Life.CLEANING))
"""Stages that a slot leaves by itself."""
DECIDED_NS: Final = 1_000_000_000
"""Longest time between a gate and the move that it decided."""


def seed_events(facts: Sequence[Entry]) -> tuple[SeedEvent, ...]:
    """The lifecycle in the facts about one env, which come oldest first."""
    told: list[SeedEvent | None] = []
    gates: dict[str | None, tuple[int, Entry]] = {}
    for fact in facts:
        if fact.kind == GATE:
            gates[fact.seed_id] = len(told), fact
            told.append(_event(fact, f"{_name(fact)} {'passed' if _passed(fact) else 'failed'}", _said(fact)))
        elif fact.kind == MOVE:
            place, gate = gates.pop(fact.seed_id, (0, None))
            if gate is not None and (fact.at - gate.at > DECIDED_NS or not _decided(gate, fact)):
                gate = None
            if gate is not None:
                told[place] = None
            if fact.message.partition(">")[0] not in CLEANING:
                told.append(_event(fact, fact.message, _why(fact, gate)))
        elif fact.kind == CRASH:
            told.append(_event(fact, "CRASHED", _crash(fact)))
    return tuple(event for event in reversed(told) if event is not None)


def _event(fact: Entry, text: str, why: str) -> SeedEvent:
    return SeedEvent(time=fact.at / 1e9, slot=safe(fact.slot or ""), text=safe(text), why=safe(why))


def _decided(gate: Entry, move: Entry) -> bool:
    """Whether a gate just before a move says nothing that the move does not: a pass, or why it was culled."""
    return _passed(gate) or move.fields.get("reason") in (None, "gate")


def _why(move: Entry, gate: Entry | None) -> str:
    """`G2: gradient ratio 0.04 < 0.10`, `G2 0.71`, else `by policy, age 9`."""
    reason, age = move.fields.get("reason"), move.fields.get("age")
    if gate is not None and (reason in (None, "gate") or _name(gate) in (reason or "")):
        said = _said(gate)
        return f"{_name(gate)} {said or 'passed'}" if _passed(gate) else f"{_name(gate)}: {said or 'failed'}"
    words = [] if reason is None else [reason.removeprefix("pruned ") if " " in reason else f"by {reason}"]
    return ", ".join([*words, *([] if age is None else [f"age {age}"])])


def _name(gate: Entry) -> str:
    return gate.message.partition("=")[2]


def _passed(gate: Entry) -> bool:
    return gate.fields.get("passed") == "yes"


def _said(gate: Entry) -> str:
    """What the gate measured, as far as it was told."""
    fields = gate.fields
    return measured(fields.get("why"), fields.get("failed", "").partition(",")[0], fields.get("score"))


def _crash(fact: Entry) -> str:
    step, error = fact.fields.get("step"), fact.fields.get("error", "")
    return error if step is None else f"at step {int(step):,}: {error}"
