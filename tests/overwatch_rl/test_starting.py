"""A process that begins again imports what it needs and no more: seconds of CPU before its first update."""

import subprocess
import sys

import pytest

LEARN = """
import sys
import torch
from overwatch_rl.algorithms.{module} import {name}, {name}Config
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
spec = make("{world}", WorldConfig(num_envs=1), {{}}).spec
made = {name}(spec, {name}Config(), seed=0)
for parameter in made.policy.parameters():
    parameter.grad = torch.ones_like(parameter)
made._optimizer.step()
made._optimizer.zero_grad(set_to_none=True)
made.load_state_dict(made.state_dict())
print(*sorted(sys.modules))
"""


def modules(code: str) -> set[str]:
    """What a fresh process has imported after some code."""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return set(found.stdout.split())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("module", "name", "world"), [("ppo", "PPO", "goodhart:small"), ("dqn", "DQN", "gym:CartPole-v1")]
)
def test_an_algorithm_does_not_load_the_compiler(module: str, name: str, world: str) -> None:
    """PyTorch's compiler takes 1.3 s of CPU to import, and computes nothing where no plan is compiled."""
    found = modules(LEARN.format(module=module, name=name, world=world))

    assert "torch.optim.adam" in found
    assert "torch._dynamo" not in found


def test_a_learner_does_not_load_the_store_of_runs() -> None:
    """The orchestrator alone has a database."""
    found = modules("import sys, overwatch_rl.learner.process; print(*sys.modules)")

    assert "overwatch_rl.orchestrator.client" in found
    assert "sqlalchemy" not in found
