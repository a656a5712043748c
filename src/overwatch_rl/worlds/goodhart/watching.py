"""One agent watched: what it sees, does and becomes, step by step, and that as lines of text.

Everything takes a frozen policy as a function from an observation to actions and gives values. Reads the
device at every step, so it is for people and not for the loop. Must not know how the policy was made.

Shape letters: V rows and columns of the view.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from overwatch_rl.types import Observation
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.goodhart.cells import CELLS, DEATHS, EMPTY, MODES, MOVES, glyphs
from overwatch_rl.worlds.goodhart.config import GoodhartConfig
from overwatch_rl.worlds.goodhart.greedy import Act
from overwatch_rl.worlds.goodhart.picture import legend, text
from overwatch_rl.worlds.goodhart.world import Goodhart


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One step of one agent."""

    age: int
    """Steps of its episode, this one included."""
    view: Tensor  # V V int8, after the move
    move: str
    ate: str | None
    """What lay in the cell; `None` for nothing."""
    energy: float
    food: int
    """Eaten since the episode began."""
    poison: int
    """Eaten since the episode began."""
    end: str | None
    """`starved`, `poisoned`, or `cut short` at the horizon; `None` while the episode goes on."""


def watch(
    act: Act, config: GoodhartConfig, *, seed: int = 0, steps: int = 500, device: str = "cpu"
) -> Iterator[Moment]:
    """Let one agent live for so many steps, episode after episode; the same seed gives the same moments."""
    world = Goodhart(WorldConfig(num_envs=1, device=device), config)
    observation = world.reset(seed)
    moves = tuple(MOVES)
    for _ in range(steps):
        actions = act(observation)
        step = world.step(actions)
        one = {name: column.tolist()[0] for name, column in step.columns.items()}
        seen = step.observation.features if step.final is None else step.final
        died = DEATHS[one["died"]] if one["died"] else None
        yield Moment(
            age=one["age"],
            view=seen[0],
            move=moves[int(actions[0, 0])],
            ate=None if one["ate"] == EMPTY else CELLS[one["ate"]],
            energy=one["metric"],
            food=one["food"],
            poison=one["poison"],
            end="cut short" if bool(step.truncated[0]) else died,
        )
        observation = step.observation


def states_of(
    act: Act, config: GoodhartConfig, *, states: int, steps: int, seed: int = 0, device: str = "cpu"
) -> Observation:
    """What so many agents see, each in a field of its own, after so many steps."""
    world = Goodhart(WorldConfig(num_envs=states, device=device), config)
    observation = world.reset(seed)
    for _ in range(steps):
        observation = world.step(act(observation)).observation
    return observation


def lines(moment: Moment, config: GoodhartConfig) -> list[str]:
    """A moment on a terminal: the view as the agent sees it, what became of it, and what the signs mean."""
    signs = glyphs(MODES[config.mode])
    became = f"step {moment.age}  {moment.move}" + (f", ate {moment.ate}" if moment.ate else "")
    end = f"  {moment.end}" if moment.end else ""
    return [
        *text(moment.view, signs),
        became,
        f"energy {moment.energy:.2f}  food {moment.food}  poison {moment.poison}{end}",
        legend(signs),
    ]
