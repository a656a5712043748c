"""Other spellings of a metric: what a library calls it, and what exactly that library measures.

Owns `Alias` and a short maker for each library. Rules: an alias means what its row means, in its unit;
where estimator or moment differ they are named, so that nobody takes one number for another. Must not know
which rows exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType


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
    RL_DRAFT = "rl.* draft"
    PLAIN = "by hand"
    """What people write into a call of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One library's name for a row."""

    name: str
    library: Library
    estimator: Estimator | None = None
    """Where it matters and is known."""
    moment: Moment | None = None
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the points must carry to be meant, where the library tells several metrics under one name."""


def sb3(name: str, estimator: Estimator | None = None, moment: Moment | None = None) -> Alias:
    """A key of Stable-Baselines3's logger."""
    return Alias(name=name, library=Library.SB3, estimator=estimator, moment=moment)


def cleanrl(name: str, estimator: Estimator | None = None, moment: Moment | None = None) -> Alias:
    """A tag that CleanRL's scripts write."""
    return Alias(name=name, library=Library.CLEANRL, estimator=estimator, moment=moment)


def trl(name: str, estimator: Estimator | None = None, moment: Moment | None = None) -> Alias:
    """A key in the logs of TRL's trainers."""
    return Alias(name=name, library=Library.TRL, estimator=estimator, moment=moment)


def verl(name: str, estimator: Estimator | None = None, moment: Moment | None = None) -> Alias:
    """A key of verl's tracking."""
    return Alias(name=name, library=Library.VERL, estimator=estimator, moment=moment)


def nemo(name: str, estimator: Estimator | None = None, moment: Moment | None = None) -> Alias:
    """A key of NeMo-RL's logger."""
    return Alias(name=name, library=Library.NEMO_RL, estimator=estimator, moment=moment)


def rllib(name: str, estimator: Estimator | None = None, moment: Moment | None = None) -> Alias:
    """A path in RLlib's results, joined by `/`."""
    return Alias(name=name, library=Library.RLLIB, estimator=estimator, moment=moment)


def draft(name: str, **attributes: str) -> Alias:
    """A metric of the `rl.*` draft; underscores in the keys of `attributes` stand for dots."""
    meant = {key.replace("_", "."): word for key, word in attributes.items()}
    return Alias(name=name, library=Library.RL_DRAFT, attributes=MappingProxyType(meant))


def plain(*names: str) -> tuple[Alias, ...]:
    """Words that people write by hand; without an estimator, since the word names none."""
    return tuple(Alias(name=name, library=Library.PLAIN) for name in names)


def of(library: Library, *names: str, estimator: Estimator | None = None) -> tuple[Alias, ...]:
    """Names that a library has for one row."""
    return tuple(Alias(name=name, library=library, estimator=estimator) for name in names)
