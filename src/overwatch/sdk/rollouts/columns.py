"""The columns of a rollout: names, shapes, types, and the words that their codes count into.

Owns the one table of columns, and the tables of words, which are given once, at the start of a run. Rules: a
code is a place in its table; a table that does not fit is refused as a whole, with the fix. Pure; loads no
NumPy. Must not know tensors or rings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from overwatch.catalog.stages import BY_CODE
from overwatch.sdk.values import RefusedError, text

STAGES: Final = tuple(stage.value for stage in BY_CODE)
"""Words of the codes of `slot_stage`: those of the catalogue."""
MAX_WORDS: Final = 32_767
"""Of one table: codes travel as 16-bit numbers."""


class WordTables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words by their codes, from 0 unless a table has another rule; all but what a run has is left out."""

    heads: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Name and words of each head of an action, the operation first. Heads named `slot` and `blueprint` are
    shown, others are not."""
    uses: tuple[tuple[bool, ...], ...] = ()
    """For each operation, which heads it uses; all of them where it is left out."""
    slots: tuple[str, ...] = ()
    """Names of the slots; those of `start(slots=...)` where it is left out."""
    blueprints: tuple[str, ...] = ()
    """Ids of the blueprints; those of `start(blueprints=...)`, in their order, where it is left out."""
    reasons: tuple[str, ...] = ()
    """Why a stage was left; code 1 is the first, 0 stands for none."""
    gates: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Name of each gate and of its checks; code 1 is the first, 0 stands for none."""
    styles: tuple[str, ...] = ()
    """How a seed is blended into its host."""
    curves: tuple[str, ...] = ()
    """How its alpha rises or falls."""
    tempos: tuple[str, ...] = ()
    """How fast it blends."""
    sizes: tuple[int, ...] = ()
    """Parameters of each blueprint; left out where they are not known."""
    panics: tuple[str, ...] = ()
    """Why the network of an env is set back; code 1 is the first, 0 stands for none."""

    @property
    def ops(self) -> tuple[str, ...]:
        """Words of the operation."""
        return self.heads[0][1] if self.heads else ()

    def head(self, name: str) -> int | None:
        """Number of a head."""
        return next((place for place, (head, _) in enumerate(self.heads) if head == name), None)


_decode: Final = msgspec.msgpack.Decoder(WordTables).decode


def word_tables(value: object) -> WordTables:
    """Tables from themselves or from a mapping of the same names; raises `RefusedError`."""
    try:
        tables = _decode(msgspec.msgpack.encode(value, enc_hook=text))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RefusedError(f"{error}; pass overwatch.sdk.WordTables(heads=..., uses=...)") from None
    heads, ops = len(tables.heads), len(tables.ops)
    if tables.uses and (len(tables.uses) != ops or any(len(row) != heads for row in tables.uses)):
        raise RefusedError(f"uses needs {ops} rows, one an operation, of {heads} entries, one a head")
    if tables.sizes and len(tables.sizes) != len(tables.blueprints):
        raise RefusedError(f"sizes needs {len(tables.blueprints)} entries, one a blueprint")
    lists = (
        *(words for _, words in tables.heads), tables.slots, tables.blueprints, tables.reasons, tables.styles,
        tables.curves, tables.tempos, tables.panics,
    )  # fmt: skip
    if max(map(len, (*lists, tables.gates)), default=0) > MAX_WORDS:
        raise RefusedError(f"a table has more than {MAX_WORDS} words")
    return tables


ACTIONS: Final = "actions"
"""All heads of an action in one column."""
CHOICES: Final = "op_probs"
"""Probability of each operation, of which the likeliest go out."""
SLOTS: Final = "slot_"
"""What the names of columns begin with that have a value a slot."""


class Per(Enum):
    """What a column has a value of, at each step."""

    ENV = "env"
    SLOT = "slot of an env"
    HEAD = "head of an env's action"
    CHOICE = "operation of an env"


@dataclass(frozen=True, slots=True)
class Known:
    """A column whose name has a meaning of its own."""

    per: Per = Per.ENV
    dtype: str = "<i2"
    """On the way to the exporter."""
    words: Callable[[WordTables], int] | None = None
    """How many words its codes count; `None` for what is no code."""
    first: int = 0
    """The code of the first word."""
    needs: str = ""
    """Which part of `WordTables` has them."""
    is_number: bool = False
    """Whether it is shown as a number besides."""


def _head(name: str) -> Callable[[WordTables], int]:
    def words(tables: WordTables) -> int:
        place = tables.head(name) if name != "op" else 0 if tables.heads else None
        return 0 if place is None else len(tables.heads[place][1])

    return words


KNOWN: Final[Mapping[str, Known]] = {
    "op": Known(words=_head("op"), needs="heads"),
    "slot": Known(words=_head("slot"), needs="heads"),
    "blueprint": Known(words=_head("blueprint"), needs="heads"),
    ACTIONS: Known(per=Per.HEAD, words=lambda tables: len(tables.ops), needs="heads"),
    CHOICES: Known(per=Per.CHOICE, dtype="<f4", words=lambda tables: len(tables.ops), needs="heads"),
    **dict.fromkeys(("confidence", "second_confidence", "third_confidence"), Known(dtype="<f4")),
    **dict.fromkeys(("second", "third"), Known(words=_head("op"), needs="heads")),
    "terminated": Known(dtype="|u1"),
    "truncated": Known(dtype="|u1"),
    "episode_return": Known(dtype="<f8"),
    "episode_length": Known(dtype="<i4"),
    "gate": Known(words=lambda tables: len(tables.gates), first=1, needs="gates"),
    "gate_slot": Known(words=lambda tables: len(tables.slots), needs="slots"),
    "gate_passed": Known(dtype="|u1"),
    "gate_score": Known(dtype="<f4"),
    "gate_failed": Known(dtype="<i4"),
    "slot_stage": Known(Per.SLOT, words=lambda _: len(STAGES), dtype="|i1", needs="stages"),
    "slot_blueprint": Known(Per.SLOT, words=lambda tables: len(tables.blueprints), needs="blueprints"),
    "slot_reason": Known(Per.SLOT, words=lambda tables: len(tables.reasons), first=1, needs="reasons"),
    "slot_style": Known(Per.SLOT, words=lambda tables: len(tables.styles), dtype="|i1", needs="styles"),
    "slot_curve": Known(Per.SLOT, words=lambda tables: len(tables.curves), dtype="|i1", needs="curves"),
    "slot_tempo": Known(Per.SLOT, words=lambda tables: len(tables.tempos), dtype="|i1", needs="tempos"),
    "governor": Known(words=lambda tables: len(tables.panics), first=1, dtype="|i1", needs="panics"),
    "episode_fossils": Known(),
    "episode_prunes": Known(),
    "slot_alpha": Known(Per.SLOT, dtype="<f4", is_number=True),
    "slot_age": Known(Per.SLOT, dtype="<i4", is_number=True),
}
"""Columns with a meaning of their own; any other is a number of envs, or of slots where it is `slot_…`."""

FLOATS: Final = frozenset({"<f4", "<f8"})


@dataclass(frozen=True, slots=True)
class Span:
    """Which steps of which envs, and when."""

    first_step: int
    """Steps of the vector env since the run began, of the first row, from 1."""
    steps: int
    """T."""
    env_first: int
    envs: int
    """N."""
    at_first: int
    """When the first step ended, Unix nanoseconds."""
    at_last: int
    lane: str | None

    def at(self, row: int) -> int:
        """When a step ended, as if all took equally long."""
        return self.at_first + (self.at_last - self.at_first) * row // max(self.steps - 1, 1)

    @property
    def last_step(self) -> int:
        """Number of the last step."""
        return self.first_step + self.steps - 1


def shape_of(name: str, span: Span, words: WordTables) -> tuple[int, ...]:
    """The shape that a column must have; raises `RefusedError` where it needs words that are not there."""
    known = KNOWN.get(name)
    per = known.per if known else Per.SLOT if name.startswith(SLOTS) else Per.ENV
    if known is not None and known.words is not None and not known.words(words):
        raise RefusedError(
            f"no words for its codes; give them once: start(words=WordTables({known.needs}=...))"
        )
    match per:
        case Per.ENV:
            return (span.steps, span.envs)
        case Per.HEAD:
            return (span.steps, span.envs, len(words.heads))
        case Per.CHOICE:
            return (span.steps, span.envs, len(words.ops))
        case Per.SLOT:
            if not words.slots:
                raise RefusedError("a run without slots; name them once: start(slots=[...])")
            return (span.steps, span.envs, len(words.slots))


def takes_floats(name: str) -> bool:
    """Whether a column may hold numbers that are not whole."""
    known = KNOWN.get(name)
    return known is None or known.dtype in FLOATS
