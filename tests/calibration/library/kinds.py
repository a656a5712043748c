"""The kinds of training in the library: what is done to which algorithms, and what a strict finding of it is.

One table of `kinds.toml` a kind. A strict finding names the cause, or the signal that is off, at least so
severe, after the fault began. The tables were written before any run was judged.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.calibration.library.drawing import share
from tests.calibration.library.series import Case

_TABLES: Final[dict[str, Any]] = msgspec.toml.decode(Path(__file__).with_name("kinds.toml").read_bytes())


def expanded(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each group as what is in it; one behind a minus is taken out."""
    found: list[str] = []
    for name in names:
        group = _TABLES["groups"].get(name)
        found += [name] if group is None else expanded(group)
    return tuple(name for name in found if name[0] != "-" and f"-{name}" not in found)


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done to a training."""

    name: str
    did: str
    algorithms: tuple[str, ...]
    runs: int = 4
    """Of each half."""
    findings: tuple[str, ...] = ()
    """Any of which is strict; with `code:row`, that finding of that row. None of a healthy kind."""
    least: str = "warning"
    midway: float = 0.5
    """Share of the runs in which it begins at a drawn moment of the middle of the training, not with it."""
    worlds: tuple[str, ...] = ()
    """Where it matters; everywhere where there are none."""
    is_of_env: bool = False
    """Whether it lies in Gymnasium's envs."""

    @property
    def is_broken(self) -> bool:
        """Whether something is wrong with its runs."""
        return bool(self.findings)


def _kinds(part: str) -> tuple[Kind, ...]:
    tables = _TABLES[part].items()
    groups = ("algorithms", "findings")
    return tuple(
        msgspec.convert(
            {"name": name, **table, **{key: expanded(table.get(key, ())) for key in groups}}, Kind
        )
        for name, table in tables
    )


HEALTHY: Final = _kinds("healthy")
BROKEN: Final = _kinds("broken")
KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in (*HEALTHY, *BROKEN)}
MEANS: Final = {name: expanded(codes) for name, codes in _TABLES["means"].items()}
"""What findings of other detectors state, in our codes."""
SB3: Final = expanded(["SB3"])
_OUTSIDE: Final = ("goodhart", "morphogenesis", "digits", "letters")
"""Worlds that are no Gymnasium envs."""


def plan(half: str, root: str) -> list[Case]:
    """The cases of a half; `root` is what its seeds are drawn from. In an order that mixes the kinds."""
    cases = [case for kind in KINDS.values() for case in _of(kind, f"{half}\n{root}")]
    return sorted(cases, key=lambda case: share(case.name, root))


def _fits(kind: Kind, world: str) -> bool:
    return not (kind.is_of_env and world in _OUTSIDE) and (world in kind.worlds or not kind.worlds)


def _of(kind: Kind, root: str) -> list[Case]:
    """A kind's cases: its algorithms in turn, each in worlds of its own in turn."""
    turns = {
        algorithm: sorted(worlds, key=lambda world: share(root, kind.name, algorithm, world))
        for algorithm in kind.algorithms
        if (worlds := [one for one in _TABLES["worlds"][algorithm] if _fits(kind, one)])
    }
    order = sorted(turns, key=lambda algorithm: share(root, kind.name, algorithm))
    cases = []
    for number in range(kind.runs):
        algorithm, turn = order[number % len(order)], number // len(order)
        worlds = turns[algorithm]
        seed = f"{int(share(root, kind.name, algorithm, str(turn)) * (1 << 32)):08x}"
        world = worlds[turn % len(worlds)]
        cases.append(Case(kind=kind.name, algorithm=algorithm, world=world, seed=seed))
    return cases
