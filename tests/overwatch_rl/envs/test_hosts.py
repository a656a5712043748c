"""Hosts and branches: isolated while they train, harmless when they germinate, measured by ablation."""

import torch
from overwatch_rl.envs.hosts import Hosts, Wiring, _strength
from torch import Tensor

NUM_HOSTS = 3
ABSENT = -1


def wiring(alpha: float, *, isolated: bool, blueprint: int) -> Wiring:
    """One slot a host, connected the same way everywhere."""
    shape = (NUM_HOSTS, 1)
    return Wiring(
        alpha=torch.full(shape, alpha),
        isolated=torch.full(shape, isolated),
        blueprint=torch.full(shape, blueprint),
    )


def trained(connected: Wiring, steps: int = 5) -> tuple[Hosts, Tensor]:
    """Hosts with a germinated branch after some steps; their accuracy."""
    hosts = Hosts(NUM_HOSTS, 1)
    hosts.seed(3)
    hosts.restart()
    hosts.germinate(torch.arange(NUM_HOSTS))
    for _ in range(steps):
        hosts.train(connected)
    return hosts, hosts.validate(connected).accuracy


def test_hosts_learn() -> None:
    """Twenty steps are better than none by far."""
    alone = wiring(0.0, isolated=False, blueprint=ABSENT)

    assert float(trained(alone, 20)[1].mean()) > float(trained(alone, 0)[1].mean()) + 0.1


def test_a_branch_in_training_does_not_touch_its_host() -> None:
    """The host's accuracy and loss are the same to the last bit with and without it."""
    alone, _ = trained(wiring(0.0, isolated=False, blueprint=ABSENT))
    beside, _ = trained(wiring(0.0, isolated=True, blueprint=0))
    nothing = wiring(0.0, isolated=False, blueprint=ABSENT)

    assert torch.equal(alone.validate(nothing).loss, beside.validate(nothing).loss)


def test_a_new_branch_changes_nothing() -> None:
    """Its output weights are zero, so even fully connected it leaves the loss as it is."""
    hosts, _ = trained(wiring(0.0, isolated=False, blueprint=ABSENT))
    hosts.germinate(torch.arange(NUM_HOSTS))
    without = hosts.validate(wiring(0.0, isolated=False, blueprint=ABSENT))
    connected = hosts.validate(wiring(1.0, isolated=False, blueprint=2))

    assert torch.allclose(without.loss, connected.loss)
    assert torch.equal(connected.gain, torch.zeros(NUM_HOSTS, 1))


def test_gain_is_what_accuracy_would_change_by() -> None:
    """In isolation the gain of adding it, connected the loss of leaving it out: the same number."""
    beside = wiring(0.0, isolated=True, blueprint=1)
    hosts, host_accuracy = trained(beside, 15)
    connected = wiring(1.0, isolated=False, blueprint=1)
    joined = hosts.validate(connected)

    assert torch.allclose(hosts.validate(beside).gain[:, 0], joined.accuracy - host_accuracy)
    assert torch.allclose(joined.gain[:, 0], joined.accuracy - host_accuracy)
    assert float(joined.gain.mean()) > 0.0


def test_a_blueprint_uses_its_own_width_only() -> None:
    """A narrow blueprint trains differently from a wide one of the same start."""
    narrow, wide = (trained(wiring(1.0, isolated=False, blueprint=kind), 10)[1] for kind in (0, 1))

    assert not torch.equal(narrow, wide)


def test_gradient_health_is_of_the_branches_that_learn() -> None:
    """Within 0 and 1 for a branch beside its host or in it; a slot without one has none."""
    for connected in (wiring(0.0, isolated=True, blueprint=0), wiring(0.5, isolated=False, blueprint=1)):
        hosts, _ = trained(connected)
        health = hosts.train(connected)
        assert health.shape == (NUM_HOSTS, 1)
        assert bool(((health > 0) & (health <= 1)).all())
    hosts, _ = trained(wiring(0.0, isolated=False, blueprint=ABSENT))

    assert bool(hosts.train(wiring(0.0, isolated=False, blueprint=ABSENT)).isnan().all())


def test_gradient_health_falls_with_the_share_that_a_branch_is_let_in() -> None:
    """A branch that is hardly part of its host hardly feels the loss, so its gradient vanishes."""
    almost, half = wiring(0.001, isolated=False, blueprint=0), wiring(0.5, isolated=False, blueprint=0)
    vanishing, strong = trained(half)[0].train(almost), trained(half)[0].train(half)

    assert bool((vanishing < 0.02).all())
    assert bool((vanishing < strong / 10).all())


def test_a_gradient_is_measured_per_weight() -> None:
    """The root of the mean square over a network's weights, whatever tensors they lie in."""
    weights = (torch.randn(4, 3), torch.randn(4, 1, 2))
    strength = _strength(weights, torch.tensor(5.0))

    by_hand = torch.stack([torch.cat([part[row].flatten() for part in weights]) for row in range(4)])
    torch.testing.assert_close(strength, by_hand.square().mean(dim=1).sqrt())
    torch.testing.assert_close(_strength(weights, torch.full((4,), 20.0)), strength / 2)
