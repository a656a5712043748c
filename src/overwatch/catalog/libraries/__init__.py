"""What training libraries call the policy's numbers: one file and one row a library.

Rules: a name is here where it means what its row means, in the row's unit once its scale is applied. All
other names of a library are custom numbers; `Names.left` has the reason of those that look like a row. Must
not know which rows exist: it names them by their short names.
"""

from typing import Final

from overwatch.catalog.alias import Alias
from overwatch.catalog.libraries import (
    cleanrl,
    lightning,
    nemo_rl,
    openrlhf,
    prime_rl,
    pufferlib,
    ray_tune,
    rl_games,
    rllib,
    rsl_rl,
    sample_factory,
    sb3,
    skrl,
    slime,
    tianshou,
    torchrl,
    transformers,
    trl,
    verl,
)
from overwatch.catalog.libraries.base import Names
from overwatch.catalog.metric import Metric, Scope

LIBRARIES: Final[tuple[Names, ...]] = (
    sb3.NAMES,
    cleanrl.NAMES,
    trl.NAMES,
    verl.NAMES,
    nemo_rl.NAMES,
    openrlhf.NAMES,
    slime.NAMES,
    prime_rl.NAMES,
    rllib.NAMES,
    torchrl.NAMES,
    tianshou.NAMES,
    skrl.NAMES,
    rsl_rl.NAMES,
    rl_games.NAMES,
    pufferlib.NAMES,
    sample_factory.NAMES,
    lightning.NAMES,
    ray_tune.NAMES,
    transformers.NAMES,
)
"""In the order in which docs show them."""


def aliases_of(row: Metric) -> tuple[Alias, ...]:
    """Other spellings of a row: those of libraries, then what people write by hand."""
    own = _BY_SHORT.get(row.short, ()) if row.scope is Scope.POLICY else ()
    return (*own, *row.aliases)


_BY_SHORT: Final = {
    short: tuple(alias for names in LIBRARIES for alias in names.rows.get(short, ()))
    for short in {short for names in LIBRARIES for short in names.rows}
}
