"""The words that codes of a rollout count into: given once, at the start of a run.

Rules: a code is a place in its table; a table that does not fit is refused as a whole, with the fix. Must
not know rollouts.
"""

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
    lists = (*(words for _, words in tables.heads), tables.slots, tables.blueprints, tables.reasons)
    if max(map(len, (*lists, tables.gates)), default=0) > MAX_WORDS:
        raise RefusedError(f"a table has more than {MAX_WORDS} words")
    return tables
