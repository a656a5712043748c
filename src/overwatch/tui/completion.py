"""What may come next in a line that is being typed: words of the filter grammar, commands, their arguments.

Pure: what is known of the run comes as a `Vocabulary`. Must not know keys, prompts or drawing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from overwatch.catalog import Stage
from overwatch.projection.filtering import NUMBERS, PLAIN_KEYS, SLOT_KEYS, STATUSES
from overwatch.snapshot import Snapshot

MOST: Final = 64
"""Candidates that are offered at most."""
_SORTS: Final = ("anomaly", "env", "return", "reward", "fps", "metric")
_MEANS: Final = {
    "env": "by id: 17 or 3,9 or 0-31", "gpu": "by lane", "node": "by the machine of its lane",
    "rank": "by the rank of its lane", "status": "by status", "blueprint": "growing it, by name or code",
    "stage": "a slot in that stage", "slot": "which slot", "score": "by anomaly", "return": "by return",
    "metric": "by the task's metric", "fps": "by steps a second",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What a run has that can be named."""

    slots: bool = True
    """Whether it has slots."""
    replay: bool = False
    """Whether a recording is shown."""
    sorts: tuple[str, ...] = _SORTS
    """What the board can be ordered by."""
    lanes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    """Ids on the board, in its order."""
    slot_names: tuple[str, ...] = ()
    blueprints: tuple[str, ...] = ()
    alarms: int = 0
    """Findings on the rail."""
    runs: tuple[str, ...] = ()
    """Ids of the runs that the collector knows, newest first."""

    @classmethod
    def of(
        cls, snapshot: Snapshot | None, *, replay: bool, alarms: int, runs: tuple[str, ...]
    ) -> "Vocabulary":
        """What can be named in a snapshot."""
        if snapshot is None:
            return cls(replay=replay, runs=runs)
        columns = snapshot.board.columns
        lanes = snapshot.system.gpus
        return cls(
            slots=snapshot.run.slots_enabled,
            replay=replay,
            sorts=tuple(name for name in _SORTS if name in ("anomaly", "env", *columns)),
            lanes=tuple(lane.gpu_id for lane in lanes),
            nodes=_once(lane.node for lane in lanes),
            ranks=_once(None if lane.rank is None else str(lane.rank) for lane in lanes),
            envs=tuple(str(env.env_id) for env in snapshot.envs),
            slot_names=_once(name for env in snapshot.envs for name in env.slots),
            blueprints=tuple(snapshot.run.blueprints),
            alarms=alarms,
            runs=runs,
        )


def _once(words: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One word that may come next."""

    word: str
    """What the word that is being typed becomes."""
    note: str = ""
    """What it means."""


def word_at(text: str) -> str:
    """The word that is being typed at the end of a text; empty behind a blank."""
    return "" if not text or text[-1].isspace() else text.rsplit(maxsplit=1)[-1]


def of_filter(text: str, vocabulary: Vocabulary) -> tuple[Candidate, ...]:
    """What the last term of a filter may become."""
    word = word_at(text)
    negated, body = word[:1] == "!", word.removeprefix("!")
    start = "!" if negated else ""
    key, sign, value = body.partition("=")
    if sign:
        done, _, part = value.rpartition(",")
        before = f"{start}{key}={done}," if done else f"{start}{key}="
        return begun(_values(key.lower(), vocabulary), part, before)
    matched = PLAIN_KEYS + (SLOT_KEYS if vocabulary.slots else ())
    keys = [(f"{name}=", _MEANS.get(name, "")) for name in matched]
    keys += [(f"{name}>", _MEANS.get(name, "")) for name in NUMBERS]
    return tuple(
        Candidate(word=start + name, note=note)
        for name, note in keys
        if name.startswith(body.lower()) and name != body
    )


def begun(words: Sequence[str], part: str, before: str = "") -> tuple[Candidate, ...]:
    """The words that begin with what was typed so far; `before` stays in front."""
    low = part.lower()
    return tuple(
        Candidate(word=before + word) for word in words if word.lower().startswith(low) and word != part
    )[:MOST]


def _values(key: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    known = {
        "status": STATUSES, "gpu": vocabulary.lanes, "node": vocabulary.nodes, "rank": vocabulary.ranks,
        "env": vocabulary.envs, "slot": vocabulary.slot_names, "blueprint": vocabulary.blueprints,
        "stage": tuple(stage.value for stage in Stage),
    }  # fmt: skip
    return known.get(key, ())
