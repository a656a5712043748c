"""A line of text that the user types, and what may come next in it: filters, searches, commands. Pure.

It is checked while it is typed; what cannot be read yet changes nothing but the message. Tab takes what the
word under the caret may become. What is known of the run comes as a `Vocabulary`. Must not know which
commands there are, keys or drawing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from overwatch.catalog import Stage
from overwatch.projection.filtering import NUMBERS, PLAIN_KEYS, SLOT_KEYS, STATUSES, FilterError, parse
from overwatch.snapshot import Snapshot
from overwatch.tui.text import clean

MOST: Final = 300
_CANDIDATES: Final = 64
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
    )[:_CANDIDATES]


def _values(key: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    known = {
        "status": STATUSES, "gpu": vocabulary.lanes, "node": vocabulary.nodes, "rank": vocabulary.ranks,
        "env": vocabulary.envs, "slot": vocabulary.slot_names, "blueprint": vocabulary.blueprints,
        "stage": tuple(stage.value for stage in Stage),
    }  # fmt: skip
    return known.get(key, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a prompt is for."""

    sign: str
    """What stands before the text."""
    entered: str
    """What Enter does to the text, as the key line writes it."""
    check: Callable[[str, Vocabulary], str | None] = lambda _text, _known: None
    """Why a text cannot be read; `None` while it may become one that can."""
    complete: Callable[[str, Vocabulary], tuple[Candidate, ...]] = lambda _text, _known: ()


def _check_filter(text: str, known: Vocabulary) -> str | None:
    try:
        parse(text, slots=known.slots)
    except FilterError as error:
        return str(error)
    return None


FILTER: Final = Kind(sign="/ ", entered="keeps", check=_check_filter, complete=of_filter)
SEARCH: Final = Kind(sign="/ ", entered="keeps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What was typed so far."""

    kind: Kind
    text: str = ""
    at: int = 0
    """Characters before the caret."""
    before: str = ""
    """What was in force when the prompt opened."""
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    """What can be named."""
    chosen: int | None = None
    """Which candidate the user went to."""

    @property
    def error(self) -> str | None:
        """Why it cannot be read, with what was probably meant."""
        return self.kind.check(self.text, self.vocabulary)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What the word before the caret may become."""
        return self.kind.complete(self.text[: self.at], self.vocabulary)

    @property
    def taken(self) -> "Prompt":
        """With the chosen candidate, or the first, in place of the word before the caret."""
        found = self.candidates
        if not found:
            return self
        word = found[min(self.chosen or 0, len(found) - 1)].word
        typed = self.text[: self.at]
        start = self.at - len(word_at(typed))
        return replace(
            self, text=typed[:start] + word + self.text[self.at :], at=start + len(word), chosen=None
        )

    def insert(self, typed: str) -> "Prompt":
        """With this text at the caret; controls are left out."""
        kept = "".join(character for character in typed if character.isprintable())
        kept = clean(kept)[: max(0, MOST - len(self.text))]
        text = self.text[: self.at] + kept + self.text[self.at :]
        return replace(self, text=text, at=self.at + len(kept), chosen=None)

    def press(self, key: str) -> "Prompt":
        """After an editing key; other keys change nothing."""
        match key:
            case "tab":
                return self.taken
            case "down" | "ctrl+n":
                return self._go(1)
            case "up" | "ctrl+p" | "shift+tab":
                return self._go(-1)
            case _:
                return replace(self._edited(key), chosen=None)

    def _go(self, by: int) -> "Prompt":
        """The next candidate, or the one before; round at the ends."""
        count = len(self.candidates)
        if not count:
            return self
        first = 0 if by > 0 else count - 1
        return replace(self, chosen=first if self.chosen is None else (self.chosen + by) % count)

    def _edited(self, key: str) -> "Prompt":
        text, at = self.text, self.at
        match key:
            case "backspace" | "ctrl+h":
                return replace(self, text=text[: max(0, at - 1)] + text[at:], at=max(0, at - 1))
            case "delete":
                return replace(self, text=text[:at] + text[at + 1 :])
            case "ctrl+u":
                return replace(self, text=text[at:], at=0)
            case "ctrl+w":
                start = len(text[:at].rstrip().rpartition(" ")[0])
                start += start > 0
                return replace(self, text=text[:start] + text[at:], at=start)
            case "left":
                return replace(self, at=max(0, at - 1))
            case "right":
                return replace(self, at=min(len(text), at + 1))
            case "home" | "ctrl+a":
                return replace(self, at=0)
            case "end" | "ctrl+e":
                return replace(self, at=len(text))
            case _:
                return self
