"""Other spellings of a metric: what a library calls it, and what exactly that library measures.

Owns `Alias` and short makers. Rules: an alias means what its row means, in its unit;
where estimator or moment differ they are named, so that no number is taken for another. Must not know
which rows exist.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final


class Estimator(Enum):
    """How a divergence was computed from samples of the log ratio r = log(new / old)."""

    K1 = "k1"
    """mean of -r: unbiased, may be negative."""
    K2 = "k2"
    """mean of r squared over 2: never negative, biased."""
    K3 = "k3"
    """mean of exp(r) - 1 - r: never negative, unbiased."""
    EXACT = "exact"
    """From the two distributions themselves."""


class Moment(Enum):
    """Over what, and when, the values of one update became one number."""

    LAST_EPOCH = "mean over the last epoch's minibatches"
    ALL_EPOCHS = "mean over all epochs and minibatches"
    LAST_MINIBATCH = "the last minibatch alone"
    BATCH = "mean over the whole batch"


class Library(Enum):
    """Who uses a spelling; the value is the library's name."""

    SB3 = "SB3"
    CLEANRL = "CleanRL"
    TRL = "TRL"
    VERL = "verl"
    NEMO_RL = "NeMo-RL"
    RLLIB = "RLlib"
    TORCHRL = "TorchRL"
    TIANSHOU = "Tianshou"
    SKRL = "skrl"
    RSL_RL = "rsl_rl"
    RL_GAMES = "rl_games"
    PUFFERLIB = "PufferLib"
    SAMPLE_FACTORY = "Sample Factory"
    OPENRLHF = "OpenRLHF"
    SLIME = "slime"
    PRIME_RL = "prime-rl"
    LIGHTNING = "Lightning"
    RAY_TUNE = "Ray Tune"
    TRANSFORMERS = "transformers"
    RL_DRAFT = "rl.* draft"
    PLAIN = "by hand"
    """What people write into a call of their own; `none` where a library is asked for."""


UNTABLED: Final = frozenset({Library.RL_DRAFT, Library.PLAIN})
"""Who has no table of names: what these call a row stands in the row itself."""


def parse_library(name: str) -> Library:
    """The library of this name, however it is written; raises `ValueError` that names the known.

    `none` is `Library.PLAIN`: no library's table is tried, whatever the names look like.

    >>> parse_library("stable-baselines3").value, parse_library("nemo rl").value, parse_library("none").name
    ('SB3', 'NeMo-RL', 'PLAIN')
    """
    found = _BY_WORD.get(_plain(name))
    if found is None:
        near = difflib.get_close_matches(_plain(name), _BY_WORD, n=1)
        hint = f"did you mean {_BY_WORD[near[0]].value!r}?" if near else ""
        known = ", ".join(library.value for library in Library if library not in UNTABLED)
        raise ValueError(f"no library is called {name!r}; {hint or f'known are {known}, none'}")
    return found


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


_OTHER_WORDS: Final = {"stablebaselines3": Library.SB3, "sb3contrib": Library.SB3, "rayrllib": Library.RLLIB,
                       "miles": Library.SLIME, "pytorchlightning": Library.LIGHTNING,
                       "none": Library.PLAIN}  # fmt: skip
_BY_WORD: Final = {
    **{_plain(library.value): library for library in Library if library not in UNTABLED},
    **_OTHER_WORDS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One library's name for a row."""

    name: str
    library: Library
    estimator: Estimator | None = None
    """Where it matters and is known."""
    moment: Moment | None = None
    scale: float = 1.0
    """What the library's number is multiplied by to be in the row's unit, with its sign."""
    is_bare: bool = False
    """Whether the name means this in its own library alone; elsewhere it means something else, or nothing."""
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the points must carry to be meant, where the library logs several metrics under one name."""

    @property
    def is_common(self) -> bool:
        """Whether the name means its row, in the row's unit, from any sender."""
        return self.scale == 1.0 and not self.is_bare


def draft(name: str, **attributes: str) -> Alias:
    """A metric of the `rl.*` draft; underscores in the keys of `attributes` stand for dots."""
    meant = {key.replace("_", "."): word for key, word in attributes.items()}
    return Alias(name=name, library=Library.RL_DRAFT, attributes=MappingProxyType(meant))


def plain(*names: str) -> tuple[Alias, ...]:
    """Words that people write by hand; without an estimator, since the word names none."""
    return tuple(Alias(name=name, library=Library.PLAIN) for name in names)
