"""The selected env: its row, its reasons with weights, its trends, what it did and what happened to it."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from overwatch.diagnose.assess import Judged
from overwatch.projection.board import BoardRows, number
from overwatch.projection.lifecycle import seed_events
from overwatch.projection.rows import env_views
from overwatch.projection.system import bound_view
from overwatch.projection.text import safe
from overwatch.snapshot import Detail, Reason, Trend
from overwatch.state.earned import RETURNS
from overwatch.state.run import Entry, RunState

EVENTS: Final = 32
"""Newest facts about the env that are told, and lines of its lifecycle."""
SHOWN: Final = 24
"""Points of a trend."""


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
    said = []
    for place in actions.of(row).tolist():
        step = int(actions.step[row, place])
        words = [
            "" if step < 0 else f"{step:,}",
            _word(state.op_names.words, int(actions.op[row, place])).upper(),
            _word(state.slot_names.words, int(actions.slot[row, place])),
            _word(state.blueprint_names.words, int(actions.blueprint[row, place])),
        ]
        said.append(safe(" ".join(word for word in words if word)))
    return tuple(line for line in said if line)


def _word(words: Sequence[str], code: int) -> str:
    return "" if code < 0 else words[code]


def _event(entry: Entry) -> str:
    words = [entry.slot or "", entry.message, *(f"{name}={value}" for name, value in entry.fields.items())]
    return safe(" ".join(word for word in words if word))
