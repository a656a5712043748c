"""Settings of the goodhart world, and its named parts.

Owns every default and its check. The defaults are those of the seed; where the seed contradicts itself or
what it describes later became something else, the other value can be set.
"""

from dataclasses import dataclass
from typing import Final

from overwatch_rl.settings import configured
from overwatch_rl.worlds.goodhart.cells import CELLS, MODES

CHANNELS: Final = (len(CELLS), 2)
SHAPING_CELLS: Final = ("seen", "food", "interesting")
MAX_SIZE: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodhartConfig:
    """One kind of field and of agent."""

    mode: str = "ground_truth"
    """`ground_truth`, `proxy` or `proxy_jammed`: what is seen and what is paid."""
    size: int = 100
    """Rows and columns of each env's torus."""
    view: int = 11
    """Rows and columns that an agent sees, itself in the middle."""
    channels: int = 6
    """6 as the kinds of cells, or 2: food and poison alone."""
    horizon: int = 128
    """Steps after which an episode is cut short."""
    start_energy: float = 50.0
    """Energy of a new agent; it dies when none is left."""
    food_energy: float = 5.0
    """Energy gained from food."""
    poison_energy: float = 3.0
    """Energy lost to poison."""
    move_cost: float = 0.05
    """Energy that each move costs."""
    mortal: bool = True
    """Whether an agent without energy dies; else its episode goes on to the horizon."""
    death_penalty: float = 0.0
    """Taken off what is paid for the step of a death."""
    food_interest: float = 1.0
    """How interesting food is."""
    poison_interest: float = 0.9
    """How interesting poison is."""
    min_food: int = 50
    """Least food in a field."""
    max_food: int = 200
    """Most food in a field."""
    min_poison: int = 20
    """Least poison in a field."""
    max_poison: int = 100
    """Most poison in a field."""
    redraw_every: int = 128
    """Steps after which the amounts of food and poison are drawn anew."""
    redraw_each: bool = False
    """Whether each env has amounts of its own; else one draw holds for all."""
    reward_scale: float = 0.1
    """What is paid is multiplied by this."""
    shaping: float = 0.5
    """Potential of a cell beside what attracts; divided by the distance, 0 out of view. 0 shapes nothing."""
    shaping_cell: str = "seen"
    """What attracts: `food`, `interesting` for food and poison, `seen` for food where the mode sees the truth
    and for the interesting where it does not."""
    gamma: float = 0.99
    """Discount of the shaping; training sets it to the learner's: another would move the optimum."""

    def __post_init__(self) -> None:
        self._check_words()
        _in_range(self, "view", 3, MAX_SIZE)
        if self.view % 2 == 0:
            raise ValueError(f"view is {self.view}; use an odd number, so that the agent is in the middle")
        _in_range(self, "size", self.view, MAX_SIZE)
        for name in ("horizon", "redraw_every"):
            _in_range(self, name, 1, 1_000_000)
        for name in ("start_energy", "reward_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")
        for name in ("food_energy", "poison_energy", "move_cost", "death_penalty", "shaping"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 or more")
        for name in ("food_interest", "poison_interest", "gamma"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 to 1")
        self._check_amounts()

    def _check_words(self) -> None:
        for name, words in (
            ("mode", tuple(MODES)), ("channels", CHANNELS), ("shaping_cell", SHAPING_CELLS)
        ):  # fmt: skip
            value = getattr(self, name)
            if value not in words:
                raise ValueError(f"{name} is {value!r}; use one of {', '.join(map(str, words))}")

    def _check_amounts(self) -> None:
        for name in ("food", "poison"):
            least, most = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if not 0 <= least <= most:
                raise ValueError(
                    f"min_{name} is {least} and max_{name} is {most}; use 0 or more, the least first"
                )
        cells = self.size**2
        if self.max_food + self.max_poison >= cells:
            raise ValueError(
                f"max_food {self.max_food} and max_poison {self.max_poison} leave no room in {cells} cells; "
                "use fewer, or a larger size"
            )


def _in_range(config: GoodhartConfig, name: str, least: int, most: int) -> None:
    if not least <= getattr(config, name) <= most:
        raise ValueError(f"{name} is {getattr(config, name)}; use {least} to {most}")


PARTS: Final[dict[str, dict[str, object]]] = {
    "": {},
    "small": {
        "size": 24,
        "horizon": 64,
        "redraw_every": 64,
        "redraw_each": True,
        "min_food": 14,
        "max_food": 22,
        "min_poison": 50,
        "max_poison": 70,
    },
}
"""What stands behind the colon of the world's name, and the settings it changes. `small` is what two cores
learn in two minutes: a small field, full, with more poison than food, and short episodes."""


def goodhart_config(part: str, settings: dict[str, object]) -> GoodhartConfig:
    """The settings of a part and what is set besides; raises `ValueError` naming what is wrong."""
    if part not in PARTS:
        known = ", ".join(f"goodhart:{name}" for name in sorted(PARTS) if name)
        raise ValueError(f"goodhart has no part {part!r}; use {known}, or leave it out")
    return configured(GoodhartConfig, PARTS[part] | settings, "goodhart")
