"""The selected env: its row, its reasons with weights, its trends, what it did and what happened to it.

What happened to its seeds comes newest first: moves with what decided them, gates, and a crash. A gate that
decided a move is part of the move's line; one that nothing followed has a line of its own. How a slot is
cleaned up after a cull goes by itself, and its slot shows it: those moves are left out.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from overwatch.catalog.stages import Life, of_life
from overwatch.diagnose.assess import Judged
from overwatch.projection.rows import BoardRows, env_views, number
from overwatch.projection.system import bound_view
from overwatch.projection.text import safe
from overwatch.snapshot import Detail, Reason, SeedEvent, Trend
from overwatch.state.env_tables import RETURNS
from overwatch.state.feed import CRASH, GATE, MOVE, measured
from overwatch.state.run import Entry, RunState

EVENTS: Final = 32
"""Newest facts about the env that are shown, and lines of its lifecycle."""
SHOWN: Final = 24
"""Points of a trend."""
CLEANING: Final = frozenset(stage.label for stage in of_life(Life.CLEANING))
"""Stages that a slot leaves by itself."""
DECIDED_NS: Final = 1_000_000_000
"""Longest time between a gate and the move that it decided."""


def detail(rows: BoardRows, judged: Judged, env_id: int) -> Detail:
    """Everything about one env; one never seen has its id alone, a removed one also when that was."""
    row = rows.state.envs.find(env_id)
    gone_at = rows.state.envs.gone.get(env_id, 0)
    if row is None:
        return Detail(env_id=env_id, removed_at=gone_at / 1e9 if gone_at else None)
    returns = _returns(rows, row)
    place = np.flatnonzero(rows.order == row)
    lane = int(rows.state.envs.lane[row])
    bound = judged.bounds.get(rows.state.lane_names.words[lane]) if lane >= 0 else None
    facts = [entry for entry in rows.state.facts.of(env_id) if entry.at > gone_at]
    return Detail(
        env_id=env_id,
        history={"return": returns},
        actions=_actions(rows.state, row),
        events=tuple(_event(entry) for entry in facts[-EVENTS:]),
        env=env_views(rows, [row])[0],
        rank=int(place[0]) + 1 if place.size else None,
        num_envs=rows.state.envs.n,
        reasons=tuple(
            Reason(name=factor.name, weight=float(factor.weight[row]), text=safe(factor.told(row)))
            for factor in judged.anomalies.found(row)
        ),
        bound=None if bound is None else bound_view(bound),
        trends=_trends(rows.state, row, returns),
        seed_events=seed_events(facts)[:EVENTS],
    )


def _returns(rows: BoardRows, row: int) -> tuple[float | None, ...]:
    """Returns of the newest finished episodes, oldest first."""
    envs = rows.state.envs
    done = int(envs.episodes[row])
    kept = range(max(0, done - min(SHOWN, RETURNS)), done)
    return tuple(number(envs.returns[row, episode % RETURNS]) for episode in kept)


def _trends(state: RunState, row: int, returns: tuple[float | None, ...]) -> dict[str, Trend]:
    found = {}
    if returns:
        word = "episode" if len(returns) == 1 else "episodes"
        found["return"] = Trend(values=returns, window=f"{len(returns)} {word}")
    trends = state.envs.trends
    places = trends.of(row)
    if not places.size:
        return found
    steps = int(trends.now[row] - trends.step[row, places[0]])
    span_s = (int(state.envs.seen_at[row]) - int(trends.at[row, places[0]])) / 1e9
    for name, source, window in (
        ("metric", "metric", f"last {steps:,} steps"),
        ("rent", "rent", f"last {steps:,} steps"),
        ("fps", "step_time", f"last {span_s:.0f}s"),
    ):
        values = [number(value) for value in trends.values[source][row, places]]
        if name == "fps":
            values = [1.0 / value if value is not None and value > 0 else None for value in values]
        if any(value is not None for value in values):
            found[name] = Trend(values=tuple(values), window=window)
    return found


def _actions(state: RunState, row: int) -> tuple[str, ...]:
    """The newest operations first: `88,214 PRUNE r1c1 conv_light`."""
    actions = state.envs.actions
    lines = []
    for place in actions.of(row).tolist():
        step = int(actions.step[row, place])
        words = [
            "" if step < 0 else f"{step:,}",
            _word(state.op_names.words, int(actions.op[row, place])).upper(),
            _word(state.slot_names.words, int(actions.slot[row, place])),
            _word(state.blueprint_names.words, int(actions.blueprint[row, place])),
        ]
        lines.append(safe(" ".join(word for word in words if word)))
    return tuple(line for line in lines if line)


def _word(words: Sequence[str], code: int) -> str:
    return "" if code < 0 else words[code]


def _event(entry: Entry) -> str:
    words = [entry.slot or "", entry.message, *(f"{name}={value}" for name, value in entry.fields.items())]
    return safe(" ".join(word for word in words if word))


def seed_events(facts: Sequence[Entry]) -> tuple[SeedEvent, ...]:
    """The lifecycle in the facts about one env, which come oldest first."""
    story: list[SeedEvent | None] = []
    gates: dict[str | None, tuple[int, Entry]] = {}
    for fact in facts:
        if fact.kind == GATE:
            gates[fact.seed_id] = len(story), fact
            story.append(
                _seed_event(fact, f"{_name(fact)} {'passed' if _passed(fact) else 'failed'}", _measured(fact))
            )
        elif fact.kind == MOVE:
            place, gate = gates.pop(fact.seed_id, (0, None))
            if gate is not None and (fact.at - gate.at > DECIDED_NS or not _decided(gate, fact)):
                gate = None
            if gate is not None:
                story[place] = None
            if fact.message.partition(">")[0] not in CLEANING:
                story.append(_seed_event(fact, fact.message, _why(fact, gate)))
        elif fact.kind == CRASH:
            story.append(_seed_event(fact, "CRASHED", _crash(fact)))
    return tuple(event for event in reversed(story) if event is not None)


def _seed_event(fact: Entry, text: str, why: str) -> SeedEvent:
    return SeedEvent(time=fact.at / 1e9, slot=safe(fact.slot or ""), text=safe(text), why=safe(why))


def _decided(gate: Entry, move: Entry) -> bool:
    """Whether a gate just before a move adds nothing to the move: a pass, or why it was culled."""
    return _passed(gate) or move.fields.get("reason") in (None, "gate")


def _why(move: Entry, gate: Entry | None) -> str:
    """`G2: gradient ratio 0.04 < 0.10`, `G2 0.71`, else `by policy, age 9`."""
    reason, age = move.fields.get("reason"), move.fields.get("age")
    if gate is not None and (reason in (None, "gate") or _name(gate) in (reason or "")):
        what = _measured(gate)
        return f"{_name(gate)} {what or 'passed'}" if _passed(gate) else f"{_name(gate)}: {what or 'failed'}"
    words = [] if reason is None else [reason.removeprefix("pruned ") if " " in reason else f"by {reason}"]
    return ", ".join([*words, *([] if age is None else [f"age {age}"])])


def _name(gate: Entry) -> str:
    return gate.message.partition("=")[2]


def _passed(gate: Entry) -> bool:
    return gate.fields.get("passed") == "yes"


def _measured(gate: Entry) -> str:
    """What the gate measured, as far as it was sent."""
    fields = gate.fields
    return measured(fields.get("why"), fields.get("failed", "").partition(",")[0], fields.get("score"))


def _crash(fact: Entry) -> str:
    step, error = fact.fields.get("step"), fact.fields.get("error", "")
    return error if step is None else f"at step {int(step):,}: {error}"
