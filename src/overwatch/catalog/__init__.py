"""WHAT is measured: one row per metric, by area; the seed stages; nothing that runs.

`ROWS` is the one truth. From a row follow its input names, its place in the snapshot, its
Prometheus name, its format and its limits; none of these is written down twice.
"""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from keyword import iskeyword
from types import MappingProxyType
from typing import Final

from overwatch.catalog import (
    compiling,
    critic,
    env,
    episodes,
    goodhart,
    gradients,
    language,
    learner,
    machine,
    moves,
    policy,
    replay,
    rewards,
    run,
    sampling,
    services,
)
from overwatch.catalog.alias import UNTABLED, Alias, Estimator, Library, Moment, parse_library
from overwatch.catalog.libraries import LIBRARIES, aliases_of
from overwatch.catalog.libraries.base import Names
from overwatch.catalog.metric import (
    NO_LIMITS,
    Cadence,
    Direction,
    Kind,
    Limit,
    Limits,
    Metric,
    NonFinite,
    Scope,
    Side,
)
from overwatch.catalog.names import label_name, plain_name, prometheus_name
from overwatch.catalog.policy import KL, UPDATE_TIME
from overwatch.catalog.presets import WORDS
from overwatch.catalog.spelling import letters, spelt
from overwatch.catalog.stages import Stage, parse_stage

__all__ = [
    "BY_NAME",
    "CUSTOM_PREFIX",
    "KL",
    "LIBRARIES",
    "NO_LIMITS",
    "ROWS",
    "UNTABLED",
    "Alias",
    "Cadence",
    "Direction",
    "Estimator",
    "Kind",
    "Library",
    "Limit",
    "Limits",
    "Metric",
    "Moment",
    "Names",
    "NonFinite",
    "Scope",
    "Side",
    "Stage",
    "aliases_of",
    "area_of",
    "chosen_by",
    "find",
    "find_split",
    "head_of",
    "is_word",
    "key_of",
    "known_in",
    "label_name",
    "meaning",
    "name_of",
    "of_scope",
    "parse_library",
    "parse_stage",
    "plain_name",
    "prometheus_name",
    "recognise",
    "row_of",
    "spellings",
    "typed",
]  # fmt: skip

_AREAS: Final = (
    policy, moves, critic, gradients, episodes, compiling, rewards, goodhart, language, env, machine, run,
    learner, replay, services, sampling,
)  # fmt: skip
ROWS: Final[tuple[Metric, ...]] = tuple(row for area in _AREAS for row in area.ROWS)

CUSTOM_PREFIX: Final = "overwatch.custom."
"""Names that no row knows travel under this prefix: shown, never judged."""

_WITH_PARTS: Final = {row.short: row for row in ROWS if row.parts}
BY_NAME: Final = MappingProxyType({row.name: row for row in ROWS})
_BY_SHORT: Final = {(row.scope, row.short): row for row in ROWS}
_BY_ALIAS: Final = {
    (row.scope, alias.name): row
    for row in ROWS
    for alias in aliases_of(row)
    if alias.is_common and not alias.attributes
}
_SPLIT: Final = tuple((alias, row) for row in ROWS for alias in row.aliases if alias.attributes)
_IN_LIBRARY: Final = {
    (names.library, alias.name): (row, alias.scale)
    for row in ROWS
    if row.scope is Scope.POLICY
    for names in LIBRARIES
    for alias in names.rows.get(row.short, ())
}
_WORDS: Final = {
    word: row
    for row in ROWS
    if row.scope is Scope.POLICY
    for word in (row.short, *(alias.name for alias in row.aliases if alias.library is Library.PLAIN))
}
"""What the catalogue itself calls the policy's rows, whoever writes."""
_LETTERS: Final = {letters(word): row for word, row in _WORDS.items()}
"""The same in any spelling: `Value Loss`, `valueLoss`."""
_AREAS_OF_TRAINING: Final = frozenset({"train", "training", "rollout", "policy", "metrics"})
"""Parts before `/` that group numbers and change no meaning; `eval/` and `loss/` do."""
_AREAS_OF_OTHERS: Final = frozenset(
    {*(row.short for row in ROWS), *_WORDS, *(scope.value for scope in Scope), "eval", "evaluation", "test",
     "val", "valid", "validation", "time", "timing", "times", "perf", "system", "critic", "target",
     "reference"}
)  # fmt: skip
"""Parts before `/` below which a word of the policy means something else: another policy, network or machine,
a time, or a statistic of the number that the part names."""
_TABLES: Final = {names.library: names for names in LIBRARIES}
_SCALED: Final = {
    alias.name: (row, alias.scale)
    for row in ROWS
    for alias in aliases_of(row)
    if alias.scale != 1.0 and not alias.is_bare
}


_NOT_POLICY: Final = tuple(scope for scope in Scope if scope is not Scope.POLICY)
_CHOICES: Final = {row.name: row.chooses for row in ROWS if row.chooses is not None}
_BARE: Final[dict[str, tuple[Library, ...]]] = {}
for _row in ROWS:
    for _alias in aliases_of(_row):
        if _alias.is_bare:
            _BARE[_alias.name] = (*_BARE.get(_alias.name, ()), _alias.library)


def find(name: str, scope: Scope | None = None, preset: str | None = None) -> Metric | None:
    """The row of a full name, or of a short name or an alias within `scope`; `None` if no row has it.

    Of the policy every spelling counts that `overwatch catalog show` knows, also below a prefix that means
    nothing else, and a word that the users of a preset mean otherwise is theirs under that `preset`. Without
    a scope, an alias that rows of several scopes have means none of them.

    >>> find("rl/return", Scope.POLICY).short, find("eval/entropy", Scope.POLICY)
    ('return', None)
    """
    row = BY_NAME.get(name)
    if row is None and scope is not None:
        name = WORDS.get(preset or "", {}).get(name, name) if scope is Scope.POLICY else name
        row = _BY_SHORT.get((scope, name)) or _BY_ALIAS.get((scope, name))
        if row is not None or scope is not Scope.POLICY or name.startswith(CUSTOM_PREFIX):
            return row
        word = _word(name)
        word = word if word in _WORDS else _last_part(name)
        return (
            _WORDS.get(WORDS.get(preset or "", {}).get(word, word))
            or _LETTERS.get(letters(word))
            or _loosely(name)
        )
    if row is None:
        meant = [found for one in Scope if (found := _BY_ALIAS.get((one, name))) is not None]
        row = meant[0] if len(meant) == 1 else None
    return row


def _word(name: str) -> str:
    """A name without the area of training that it is in."""
    area, _, word = name.partition("/")
    return word if area.lower() in _AREAS_OF_TRAINING else name


def _last_part(name: str) -> str:
    """A name without any prefix, where that changes no meaning.

    A loss is that of what the prefix names, and a part with a number names a single agent of several.
    """
    areas, _, word = name.rpartition("/")
    parts = areas.lower().split("/")
    is_other = not _AREAS_OF_OTHERS.isdisjoint(parts) or any(part[-1:].isdigit() for part in parts)
    is_other |= name in _BARE or word == "loss"
    return name if is_other else word


def area_of(name: str) -> str:
    """What a name has before its last part, without areas of training: an agent or a module, where there are.

    >>> area_of("train/red/kl"), area_of("train/kl"), area_of("kl")
    ('red', '', '')
    """
    return _word(name).rpartition("/")[0]


def is_word(name: str) -> bool:
    """Whether the catalogue itself has a name of the policy, so that it shows no library.

    >>> is_word("value_loss"), is_word("train/value_loss"), is_word("losses/value_loss")
    (True, True, False)
    """
    return name in BY_NAME or _word(name) in _WORDS


def row_of(key: str, scope: Scope = Scope.POLICY) -> Metric | None:
    """The row that a snapshot calls so: a number of the run's own may be called as a row is elsewhere."""
    return BY_NAME.get(key) or _BY_SHORT.get((scope, key))


def key_of(name: str) -> str:
    """What a snapshot calls a number of the policy: a row by its short name, others by their own.

    >>> key_of("overwatch.policy.entropy"), key_of("overwatch.custom.mine")
    ('entropy', 'mine')
    >>> key_of("overwatch.custom.entropy")
    'overwatch.custom.entropy'
    """
    row, own = BY_NAME.get(name), name.removeprefix(CUSTOM_PREFIX)
    if row is not None:
        return row.short
    return name if row_of(own) else own


def name_of(key: str) -> str:
    """The full name of what a snapshot calls so."""
    row = row_of(key)
    if row is not None:
        return row.name
    return key if key.startswith(CUSTOM_PREFIX) else f"{CUSTOM_PREFIX}{key}"


@lru_cache(4096)
def _loosely(name: str) -> Metric | None:
    """The policy's row by a spelling that is no name of input: its Prometheus name, record or label.

    A column `update` counts updates, whatever the screen calls so.
    """
    found = () if letters(name) == UPDATE_TIME.label else spelt(name, of_scope(Scope.POLICY))
    return found[0] if len(found) == 1 else None


def recognise(name: str, library: Library) -> tuple[Metric, float] | None:
    """The policy's row that a library's table has for a name, and what scales its number; or `None`.

    `meaning` tries the catalogue's words after the table.

    >>> recognise("train/entropy_loss", Library.SB3)[1], recognise("entropy", Library.SB3)
    (-1.0, None)
    """
    row = BY_NAME.get(name)
    return _IN_LIBRARY.get((library, name)) if row is None else (row, 1.0)


def meaning(
    name: str, scope: Scope | None = None, *, preset: str | None = None, library: Library | None = None
) -> tuple[Metric, float] | None:
    """The row that a number is of, and what the number is multiplied by to be in the row's unit; or `None`.

    Where the sender's library is known its table comes first, with names that mean this there alone; what
    the table leaves out on purpose is a number of no row. All else is what `find` finds, and names that no
    two libraries mean otherwise, in their unit.

    >>> meaning("perf/mfu")[1], meaning("train/entropy_loss")
    (0.01, None)
    >>> meaning("train/entropy_loss", library=Library.SB3)[1]
    -1.0
    """
    if scope in (None, Scope.POLICY) and name not in BY_NAME:
        if library is not None:
            own = _IN_LIBRARY.get((library, name))
            if own is not None or (library in _TABLES and _TABLES[library].leaves(name)):
                return own
        if name in _SCALED:
            return _SCALED[name]
    row = find(name, scope, preset)
    if row is None and scope is None and not any((other, name) in _BY_SHORT for other in _NOT_POLICY):
        row = _BY_SHORT.get((Scope.POLICY, name))
    return None if row is None else (row, 1.0)


def chosen_by(names: Iterable[str]) -> str | None:
    """The preset that full names choose, of a run that names neither preset nor algorithm; or `None`.

    >>> chosen_by(["overwatch.policy.return", "overwatch.policy.groups_alike"])
    'grpo'
    """
    return next((_CHOICES[name] for name in names if name in _CHOICES), None)


def known_in(name: str) -> tuple[Library, ...]:
    """The libraries where alone a name means a row."""
    return _BARE.get(name, ())


def spellings(row: Metric, library: Library | None = None) -> list[str]:
    """Names of input of a row, the surest first: the full one, then those of the sender's library."""
    aliases = aliases_of(row)
    own = (alias.name for alias in aliases if alias.library is library)
    return [row.name, *own, row.short, *(alias.name for alias in aliases if alias.is_common)]


def typed(row: Metric) -> str | None:
    """A spelling of a row that Python takes as the name of an argument."""
    plain = (alias.name for alias in row.aliases if alias.library is Library.PLAIN)
    return next((word for word in (row.short, *plain) if word.isidentifier() and not iskeyword(word)), None)


def find_split(name: str, attributes: Mapping[str, object]) -> Metric | None:
    """The row of an alias that several rows have, each with attributes of its own on the points."""
    for alias, row in _SPLIT:
        if alias.name == name and all(attributes.get(key) == word for key, word in alias.attributes.items()):
            return row
    return None


@cache
def of_scope(scope: Scope) -> tuple[Metric, ...]:
    """All rows of one scope, in catalogue order."""
    return tuple(row for row in ROWS if row.scope is scope)


def head_of(name: str) -> tuple[Metric, str] | None:
    """The row that a policy number is a part of, and which part; `None` for all other names.

    >>> row, head = head_of("entropy/op")
    >>> row.short, head
    ('entropy', 'op')
    """
    short, _, part = name.removeprefix(CUSTOM_PREFIX).partition("/")
    row = _WITH_PARTS.get(short)
    return None if row is None or not part else (row, part)
