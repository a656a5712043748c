"""In the kernel of a notebook a run ends as its cells do, although an exception ends no kernel."""

from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.libraries.examples import FOLDER, Example
from tests.libraries.running import LIMIT_S, python_of, watched

LISTED: Final = (FOLDER / "launchers" / "notebook.txt").read_text().split()
DRIVER: Final = Path(__file__).with_name("notebook.py")
pytestmark = [pytest.mark.long, pytest.mark.timeout(LIMIT_S)]

BY_HAND: Final = """
import overwatch.sdk
run = overwatch.sdk.start(task="by-hand", sample=False)
run.update(update=1, return_=1.0)
"""
SB3: Final = """
import gymnasium
from stable_baselines3 import PPO
from overwatch.adapters.sb3 import OverwatchCallback

class Breaks(gymnasium.Wrapper):
    def step(self, action):
        if self.breaks and self.env.unwrapped.steps_beyond_terminated is None:
            self.left -= 1
            if not self.left:
                raise RuntimeError("the simulator died")
        return super().step(action)

env = Breaks(gymnasium.make("CartPole-v1"))
env.breaks, env.left = {breaks}, 100
PPO("MlpPolicy", env, n_steps=64).learn(256, callback=OverwatchCallback())
"""
LATER: Final = "print('a plot')"
ENDINGS: Final = {
    "by hand, well": ([BY_HAND], "completed", None, [[]]),
    "by hand, raises": (
        [f"{BY_HAND}\n1 / 0", LATER], "failed", "ZeroDivisionError", [["ZeroDivisionError"], []]
    ),
    "by hand, interrupted": (
        [f"{BY_HAND}\nraise KeyboardInterrupt"], "interrupted", "KeyboardInterrupt", [["KeyboardInterrupt"]]
    ),
    "SB3, well": ([SB3.format(breaks=False), LATER], "completed", None, [[], []]),
    "SB3, raises": (
        [SB3.format(breaks=True), LATER], "failed", "RuntimeError: the simulator died", [["RuntimeError"], []]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "outcome", "reason", "raised"), ENDINGS.values(), ids=ENDINGS)
def test_a_run_ends_as_its_cells_do(
    tmp_path: Path, cells: list[str], outcome: str, reason: str | None, raised: list[list[str]]
) -> None:
    """A cell that raised is the end, also where a later one went well and where the kernel ended well."""
    needed = tuple(Requirement(word) for word in LISTED)
    python = python_of(Example(name="notebook", script=DRIVER, requirements=needed))

    seen = watched([str(python), str(DRIVER), *cells], python, tmp_path)

    assert seen.status == 0, seen.output[-3000:]
    printed = [line for line in seen.output.splitlines() if line.startswith("raised: ")]
    assert printed == [f"raised: {one}" for one in raised]
    (snapshot,) = seen.runs.values()
    assert snapshot.run.outcome == outcome
    assert (snapshot.run.reason or "").startswith(reason or "")
