"""Trying branches changes nothing, and gives what growing them would."""

import pytest
import torch

from overwatch_rl.worlds.morphogenesis.data import digits
from overwatch_rl.worlds.morphogenesis.growth import gradients
from overwatch_rl.worlds.morphogenesis.hosts.base import Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP, NOOP
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts

HOSTS, SLOTS = 3, 2


def made() -> tuple[MLPHosts, Wiring]:
    """Hosts that learned a little, one with a branch."""
    hosts = MLPHosts(HOSTS, SLOTS, digits(), torch.device("cpu"))
    hosts.seed(4)
    hosts.restart()
    blueprint = torch.full((HOSTS, SLOTS), -1)
    blueprint[0, 0] = 1
    wiring = Wiring(
        alpha=(blueprint >= 0).float(),
        isolated=torch.zeros(HOSTS, SLOTS, dtype=torch.bool),
        blueprint=blueprint,
        algorithm=torch.zeros(HOSTS, SLOTS, dtype=torch.int64),
    )
    hosts.germinate(torch.tensor([0]))
    for _ in range(3):
        hosts.train(wiring)
    return hosts, wiring


def test_hosts_and_generators_stay_as_they_were() -> None:
    """To the bit; the next step of training too."""
    hosts, wiring = made()
    other, _ = made()
    before = {name: value.clone() for name, value in hosts.state_dict().items()}
    gradients(hosts, wiring, wiring.blueprint < 0)

    assert all(torch.equal(value, before[name]) for name, value in hosts.state_dict().items())
    hosts.train(wiring)
    other.train(wiring)
    assert all(torch.equal(value, hosts.state_dict()[name]) for name, value in other.state_dict().items())


@pytest.mark.parametrize("number", [number for number, one in enumerate(MLP) if one.id != NOOP])
def test_a_gradient_is_that_of_the_branch_that_is_grown(number: int) -> None:
    """In free slots alone; over the host's, by the root of its weights."""
    hosts, wiring = made()
    free = wiring.blueprint < 0
    found = gradients(hosts, wiring, free)
    hosts.germinate(free.flatten().nonzero().squeeze(1))
    grown = Wiring(
        alpha=wiring.alpha, isolated=free, blueprint=torch.where(free, number, wiring.blueprint),
        algorithm=wiring.algorithm,
    )  # fmt: skip
    ratio = hosts.train(grown).ratio

    assert found.shape == (HOSTS, SLOTS, len(MLP))
    assert torch.equal(found[..., number].isnan(), ~free)
    assert torch.allclose(found[..., number][free], (ratio * hosts.sizes[number].sqrt())[free])
    assert bool((found[free][:, number] > 0).all())
    nothing = [one.id for one in MLP].index(NOOP)
    assert bool(found[..., nothing].isnan().all())  # what does nothing has no gradient
