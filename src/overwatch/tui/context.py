"""What a frame depends on besides the snapshot: the terminal's size, the cursor, and how fresh things are.

The terminal itself counts how long nothing has arrived: a screen that no longer moves must say so. Pure.
"""

from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from overwatch.snapshot import Link
from overwatch.tui.grammar import age, duration
from overwatch.tui.text import Role

SLOW_S: Final = 2.0
STALE_S: Final = 5.0
_RANK: Final = {"live": 0, "slow": 1, "catching_up": 1, "stale": 2, "lost": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Whether what is shown is fresh, in one word, and the age of its data."""

    state: str
    """`live`, `slow`, `catching_up`, `stale`, `lost` or `ended`."""
    age_s: float | None
    cut_off: bool = False
    """The data stopped coming to this terminal, whatever the collector last said of it."""

    @property
    def old(self) -> bool:
        """Whether values are marked as old."""
        return self.state in ("stale", "lost")

    @property
    def role(self) -> Role:
        """What the word means to the eye."""
        roles = {"live": Role.OK, "slow": Role.WARN, "catching_up": Role.WARN, "ended": Role.TEXT}
        return roles.get(self.state, Role.CRIT)

    @property
    def text(self) -> str:
        """`LIVE 0.3s`, `STALE 14s`."""
        word = self.state.upper().replace("_", " ")
        if self.age_s is None:
            return word
        return f"{word} {duration(self.age_s, coarse=True) if self.state == 'ended' else age(self.age_s)}"


def freshness(link: Link, waited_s: float, *, connected: bool = True) -> Freshness:
    """Judge the link by the collector's word and by how long this terminal has heard nothing.

    Without a connection, two seconds of silence are enough to call it stale. An ended run stays ended.
    """
    total = None if link.data_age_s is None else link.data_age_s + waited_s
    if link.state == "ended":
        return Freshness(state="ended", age_s=total)
    patience_s = STALE_S if connected else SLOW_S
    here = "stale" if waited_s >= patience_s else "slow" if waited_s >= SLOW_S else "live"
    cut_off = _RANK[here] > _RANK.get(link.state, 0)
    return Freshness(state=here if cut_off else link.state, age_s=total, cut_off=cut_off and here == "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One terminal at one moment."""

    width: int
    height: int
    fresh: Freshness
    waited_s: float = 0.0
    """Since the snapshot arrived here, on a monotonic clock."""
    cursor: int | None = None
    """The env under the cursor; without one, the cursor lies on the first row."""
    zone: tzinfo | None = None
    """Clock times are shown in it; `None` means this machine's."""

    @property
    def compact(self) -> bool:
        """Whether the terminal is too narrow for the standard layout."""
        return self.width < 120
