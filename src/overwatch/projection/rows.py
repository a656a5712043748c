"""The rows of the flight board, many envs at once with their slots, and one of them in detail.

Columns are read in one piece. Of the selected env: its reasons with weights, its trends, what it did and what
happened to it. Of its seeds the newest comes first: moves with what decided them, gates, and a crash. A gate
that decided a move is part of the move's line; one that nothing followed has a line of its own. How a
slot is cleaned up after a cull goes by itself, and its slot shows it: those moves are left out.

Selects and formats; must not know which envs are shown, or in which order.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from overwatch.catalog.stages import BY_CODE, Life, of_life, parse_stage
from overwatch.diagnose.anomaly import STATUSES
from overwatch.diagnose.assess import Judged
from overwatch.diagnose.liveness import LEAST_S, STALE
from overwatch.projection.system import bound_view
from overwatch.projection.text import safe, safe_all, safe_or_none
from overwatch.snapshot import Anomaly, Choice, Detail, Env, Reason, SeedEvent, Slot, Stay, Trend
from overwatch.state.arrays import Floats, Ints
from overwatch.state.env_tables import MEASURES, RETURNS
from overwatch.state.envs import Envs
from overwatch.state.feed import CRASH, GATE, MOVE, measured
from overwatch.state.places import Mask
from overwatch.state.rollups import fps_of
from overwatch.state.run import Entry, RunState

UNKNOWN: Final = len(STATUSES)
WORDS: Final = (*STATUSES, "unknown")
_CALM: Final = Anomaly(score=0.0, reasons=())
# By stage code; the last place is that of -1, which is no slot.
_STAGE_WORDS: Final = np.array([*(stage.value for stage in BY_CODE), ""], dtype=np.object_)
_GLYPHS: Final = np.array([*(stage.glyph for stage in BY_CODE), ""], dtype=np.object_)
_SHOWS_BLUEPRINT: Final = np.array([*(stage.shows_blueprint for stage in BY_CODE), False])
"""Whether a stage shows what grows there."""


class BoardRows:
    """What the board needs of all envs at one tick, worked out once."""

    def __init__(self, state: RunState, judged: Judged) -> None:
        envs = state.envs
        self.state = state
        self.judged = judged
        self.anomalies = judged.anomalies
        self.rollups = judged.assessment.second.rollups
        self.order = judged.assessment.ranks.order
        self.metric = present(envs, "metric")
        self.rent = present(envs, "rent")
        self.reward = present(envs, "reward")
        self.step_time = present(envs, "step_time")
        self.stale = judged.link.state in STALE or _hangs(envs, judged)
        codes = judged.anomalies.codes
        self.codes: Ints = np.where(codes == 0, UNKNOWN, codes) if self.stale else codes
        """Status of each env as its place among the words, shape (n,)."""
        self.lane_names = (*safe_all(state.lane_names.words), None)
        """By lane code; the last one is that of -1."""
        self.lanes = envs.by_lane()
        """Rows of each lane."""
        self.lane_order = envs.lanes_by(self.order)
        """Lane codes by their worst env; -1 is the lane that was not named."""

    @cached_property
    def returns(self) -> Floats:
        """Return of each env, shape (n,)."""
        return self.state.envs.mean_return()

    @cached_property
    def fps(self) -> Floats:
        """Steps a second of each env, shape (n,)."""
        return fps_of(self.step_time)

    def words(self, at: Ints) -> list[str]:
        """Status words of these rows."""
        if not self.anomalies.factors and not self.stale:
            return [STATUSES[0]] * at.size
        return [WORDS[code] for code in self.codes[at].tolist()]

    def of_status(self, wanted: Callable[[str], bool]) -> Mask:
        """Which envs have a status that is wanted, shape (n,)."""
        hits = np.array([wanted(word) for word in WORDS], dtype=np.bool_)
        return hits[self.codes]


def _hangs(envs: Envs, judged: Judged) -> bool:
    """Whether training is stalled, and no env has reported since that began."""
    since = judged.assessment.stalled_since
    return bool(since and envs.n and envs.seen_at[: envs.n].max() < since + LEAST_S * 1e9)


def present(envs: Envs, name: str) -> Floats:
    """One measure of all envs, shape (n,); NaN where it was never measured."""
    return envs.values[name][: envs.n]


def number(value: float) -> float | None:
    """A finite float, else `None`."""
    return float(value) if np.isfinite(value) else None


def env_views(rows: BoardRows, shown: Sequence[int]) -> tuple[Env, ...]:
    """The board's rows of these rows of the table."""
    envs, at = rows.state.envs, np.array(shown, dtype=np.int64)
    actions, slots = _actions(rows.state, at), slots_of(rows.state, at)
    ids, lanes = envs.ids[at].tolist(), [rows.lane_names[lane] for lane in envs.lane[at].tolist()]
    words, scores = rows.words(at), rows.anomalies.scores[at].tolist()
    rewards, returns, metrics, rents, steps, fps = _columns(rows, at)
    return tuple(
        [
            Env(
                env_id=ids[place],
                gpu_id=lanes[place],
                status=words[place],
                reward=rewards[place],
                episode_return=returns[place],
                metric=metrics[place],
                rent=rents[place],
                step_time_s=steps[place],
                fps=fps[place],
                last_action=actions[place],
                stale=rows.stale,
                anomaly=_anomaly(rows, row, scores[place]) if scores[place] else _CALM,
                slots=slots[place],
            )
            for place, row in enumerate(shown)
        ]
    )


def _columns(rows: BoardRows, at: np.ndarray) -> list[list[float | None]]:
    """Reward, return, metric, rent, step time and steps a second of each row."""
    step_time = rows.step_time[at]
    returns = rows.state.envs.mean_return(at)
    every = (rows.reward[at], returns, rows.metric[at], rows.rent[at], step_time, fps_of(step_time))
    flat = numbers(np.concatenate(every))
    return [flat[place * at.size : (place + 1) * at.size] for place in range(len(every))]


def _anomaly(rows: BoardRows, row: int, score: float) -> Anomaly:
    return Anomaly(score=score, reasons=tuple(safe(reason) for reason in rows.anomalies.reasons(row)))


def _actions(state: RunState, at: np.ndarray) -> list[str | None]:
    """The newest action of each env, e.g. `GROW r0c1`; `None` before the first."""
    actions = state.envs.actions
    if not state.op_names.words:
        return [None] * at.size
    place = (actions.count[at] - 1) % actions.op.shape[1]
    ops = np.where(actions.count[at] > 0, actions.op[at, place], -1).tolist()
    words = [safe(word.upper()) for word in state.op_names.words]
    names = safe_all(state.slot_names.words)
    return [
        None if op < 0 else words[op] if slot < 0 else f"{words[op]} {names[slot]}"
        for op, slot in zip(ops, actions.slot[at, place].tolist(), strict=True)
    ]


def slots_of(state: RunState, at: np.ndarray) -> list[dict[str, Slot]]:
    """The slots of each of these rows that has any, by name."""
    envs = state.envs
    found: list[dict[str, Slot]] = [{} for _ in range(at.size)]
    words = state.slot_names.words[: envs.stage.shape[1]]
    if not words:
        return found

    def column(grid: np.ndarray) -> np.ndarray:
        """Return the grid's shown rows, slot by slot, as one column."""
        return grid.take(at, axis=0)[:, : len(words)].T.ravel()

    stages, ages = column(envs.stage), column(envs.age)
    named, nothing = _SHOWS_BLUEPRINT[stages], [None] * stages.size
    blueprints = state.blueprint_names.words
    cells = zip(
        found * len(words),
        [name for name in safe_all(words) for _ in found],
        (stages >= 0).tolist(),
        _STAGE_WORDS[stages].tolist(),
        _GLYPHS[stages].tolist(),
        _words_of(blueprints, np.where(named, column(envs.blueprint), -1)) if blueprints else nothing,
        numbers(column(envs.alpha)),
        _where_known(ages, ages >= 0),
        _gates(envs, words, at, named),
        numbers(np.where(named, column(envs.grad), np.nan)) if envs.graded else nothing,
        strict=True,
    )
    for slots, name, is_there, stage, glyph, blueprint, alpha, age, gate, grad in cells:
        if is_there:
            slots[name] = Slot(
                stage=stage, glyph=glyph, blueprint=blueprint, alpha=alpha, age=age, gate=gate, grad=grad
            )
    return found


def numbers(values: np.ndarray) -> list[float | None]:
    """Finite floats; `None` for what is not."""
    return _where_known(values, np.isfinite(values))


def _where_known(values: np.ndarray, known: Mask) -> list[float | None]:
    found: list[float | None] = values.tolist()
    if known.all():
        return found
    return [value if is_known else None for value, is_known in zip(found, known.tolist(), strict=True)]


def _words_of(words: list[str], codes: np.ndarray) -> list[str | None]:
    """The word of each code; -1 has none."""
    found: list[str | None] = np.array([*safe_all(words), None], dtype=np.object_)[codes].tolist()
    return found


def _gates(envs: Envs, words: list[str], at: np.ndarray, named: Mask) -> list[str | None]:
    """The last gate of each slot that shows what grows there."""
    found: list[str | None] = [None] * named.size
    if not envs.gates:
        return found
    shown = named.tolist()
    for place, env_id in enumerate(envs.ids[at].tolist()):
        passed = envs.gates.get(env_id, {})
        for slot, word in enumerate(words):
            cell = slot * at.size + place
            if passed and shown[cell]:
                found[cell] = safe_or_none(passed.get(word))
    return found


EVENTS: Final = 32
"""Newest facts about the env that are shown, and lines of its lifecycle."""
SHOWN: Final = 24
"""Points of a trend."""
CLEANING: Final = frozenset(stage.label for stage in of_life(Life.CLEANING))
"""Stages that a slot leaves by itself."""
DECIDED_NS: Final = 1_000_000_000
"""Longest time between a gate and the move that it decided."""


def detail(rows: BoardRows, env_id: int) -> Detail:
    """Everything about one env; one never seen has its id alone, a removed one also when that was."""
    row = rows.state.envs.find(env_id)
    gone_at = rows.state.envs.gone.get(env_id, 0)
    if row is None:
        return Detail(env_id=env_id, removed_at=gone_at / 1e9 if gone_at else None)
    returns = _returns(rows, row)
    place = np.flatnonzero(rows.order == row)
    lane = int(rows.state.envs.lane[row])
    bound = rows.judged.bounds.get(rows.state.lane_names.words[lane]) if lane >= 0 else None
    facts = [entry for entry in rows.state.facts.of(env_id) if entry.at > gone_at]
    return Detail(
        env_id=env_id,
        history={"return": returns},
        actions=_acted(rows.state, row),
        events=tuple(_event(entry) for entry in facts[-EVENTS:]),
        env=env_views(rows, [row])[0],
        rank=int(place[0]) + 1 if place.size else None,
        num_envs=rows.state.envs.n,
        reasons=tuple(
            Reason(name=factor.name, weight=float(factor.weight[row]), text=safe(factor.reported(row)))
            for factor in rows.anomalies.found(row)
        ),
        bound=None if bound is None else bound_view(bound),
        trends=_trends(rows.state, row, returns),
        seed_events=seed_events(facts)[:EVENTS],
        numbers=_numbers(rows.state, row),
        slots=_slot_numbers(rows.state, row),
        choice=_choice(rows.state, row),
        lives=_lives(facts),
    )


def _numbers(state: RunState, row: int) -> dict[str, float]:
    """Further rows of the env that have a value."""
    envs = state.envs
    reported = {name: number(envs.values[name][row]) for name in sorted(envs.values) if name not in MEASURES}
    found = {name: value for name, value in reported.items() if value is not None}
    if envs.rollbacks[row]:
        found["rollbacks"] = float(envs.rollbacks[row])
    return found


def _slot_numbers(state: RunState, row: int) -> dict[str, dict[str, float]]:
    """Further rows of each slot that has a value."""
    found: dict[str, dict[str, float]] = {}
    for name, grid in state.envs.grids.items():
        for slot, value in zip(safe_all(state.slot_names.words), grid[row].tolist(), strict=False):
            if np.isfinite(value):
                found.setdefault(slot, {})[name] = value
    return found


def _choice(state: RunState, row: int) -> tuple[Choice, ...]:
    """The newest operation and those beside it, each with its probability."""
    choices, words = state.envs.choices, state.op_names.words
    taken, _ = state.envs.actions.last(row)
    shares = [(float(taken), "confidence")]
    shares += [
        (float(choices[name][row]), f"{name}_confidence") for name in ("second", "third") if name in choices
    ]
    found = []
    for code, name in shares:
        share = number(choices[name][row]) if name in choices else None
        if share is not None and code >= 0:
            found.append(Choice(op=safe(words[int(code)].upper()), probability=share))
    return tuple(found)


def _lives(facts: Sequence[Entry]) -> dict[str, tuple[Stay, ...]]:
    """The stages that each slot entered, in the facts about one env, which come oldest first."""
    found: dict[str, list[Stay]] = {}
    for fact in facts:
        if fact.stage is not None and fact.slot is not None:
            stage = parse_stage(fact.stage)
            stay = Stay(time=fact.at / 1e9, stage=stage.value, glyph=stage.glyph)
            found.setdefault(safe(fact.slot), []).append(stay)
    return {slot: tuple(stays) for slot, stays in found.items()}


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


def _acted(state: RunState, row: int) -> tuple[str, ...]:
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
    run_history: list[SeedEvent | None] = []
    gates: dict[str | None, tuple[int, Entry]] = {}
    for fact in facts:
        if fact.kind == GATE:
            gates[fact.seed_id] = len(run_history), fact
            run_history.append(
                _seed_event(fact, f"{_name(fact)} {'passed' if _passed(fact) else 'failed'}", _measured(fact))
            )
        elif fact.kind == MOVE:
            place, gate = gates.pop(fact.seed_id, (0, None))
            if gate is not None and (fact.at - gate.at > DECIDED_NS or not _decided(gate, fact)):
                gate = None
            if gate is not None:
                run_history[place] = None
            if fact.message.partition(">")[0] not in CLEANING:
                run_history.append(_seed_event(fact, fact.message, _why(fact, gate)))
        elif fact.kind == CRASH:
            step, error = fact.fields.get("step"), fact.fields.get("error", "")
            run_history.append(
                _seed_event(fact, "CRASHED", error if step is None else f"at step {int(step):,}: {error}")
            )
    return tuple(event for event in reversed(run_history) if event is not None)


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
