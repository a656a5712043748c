"""MLP hosts: the written-out gradients are autograd's, and a blueprint's weights are its own alone."""

import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.worlds.morphogenesis.data import digits
from overwatch_rl.worlds.morphogenesis.hosts.base import Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP
from overwatch_rl.worlds.morphogenesis.hosts.live import live
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts
from tests.overwatch_rl.worlds.morphogenesis.hosts.begun import CPU, NUM_HOSTS, begun, mixed, wiring


def reference(
    hosts: MLPHosts, leaves: tuple[list[Tensor], list[Tensor]], connected: Wiring, x: Tensor
) -> list[Tensor]:
    """Logits S C of each host with what is connected, then those of each isolated branch beside it."""
    networks, branches = leaves
    totals, alone = [], []
    for host in range(NUM_HOSTS):
        first, last = (weight[host] for weight in networks)
        own = functional.relu(x[host] @ first.T)[:, :-1] @ last.T[:-1] + last[:, -1]
        total, isolated = own, []
        for slot in range(3):
            kind = int(connected.blueprint[host, slot])
            if not 0 <= kind < len(MLP) - 1:
                continue
            first, last = (weight[host * 3 + slot] for weight in branches)
            units = x[host] @ first.T
            units = functional.relu(units) if MLP[kind].is_rectified else units
            z = units[:, :-1] @ last.T[:-1] + last[:, -1]
            beside = own.detach() if connected.isolated[host, slot] else own
            term = (z, beside * z, z * z.sigmoid())[int(connected.algorithm[host, slot])]
            if connected.isolated[host, slot]:
                isolated.append(term)
            else:
                total = total + connected.alpha[host, slot] * term
        totals.append(total)
        alone += [(total.detach() + term, host) for term in isolated]
    return totals, alone


def test_gradients_are_those_of_autograd() -> None:
    """All ways to blend, connected and isolated, host by host in plain formulas."""
    hosts, connected = begun(slots=3), mixed()
    assert isinstance(hosts, MLPHosts)
    for _ in range(3):
        hosts.train(connected)
    x, y = hosts.batches.take()
    present = live(connected, len(MLP))
    found = hosts._gradients(hosts.branches.take(present.rows), present, x, y)

    leaves = tuple(
        [weight.clone().requires_grad_() for weight in part.weights] for part in (hosts.hosts, hosts.branches)
    )
    totals, alone = reference(hosts, leaves, connected, x)
    losses = torch.stack([functional.cross_entropy(total, y[host]) for host, total in enumerate(totals)])
    apart = torch.stack([functional.cross_entropy(logits, y[host]) for logits, host in alone])
    gradients = torch.autograd.grad(losses.sum() + apart.sum(), [*leaves[0], *leaves[1]])
    torch.testing.assert_close(found.loss, losses)
    for ours, theirs in zip(found.hosts, gradients[:2], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    for place, (ours, theirs) in enumerate(zip(found.branches, gradients[2:], strict=True)):
        expected = theirs.index_select(0, present.rows)
        if place == 0:  # The last unit is 1 and learns nothing.
            expected[:, -1] = 0.0
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)


def test_accuracy_is_of_the_largest_logit() -> None:
    """The same as argmax, of hosts that measured in several chunks."""
    hosts = MLPHosts(40, 3, digits(), CPU)
    hosts.seed(1)
    hosts.restart()
    none = torch.zeros(40, 3)
    connected = Wiring(alpha=none, isolated=none.bool(), blueprint=none.long() - 1, algorithm=none.long())
    hosts.train(connected)
    measured = hosts.validate(connected)

    first, last = hosts.hosts.weights
    x, y = digits().valid_x, digits().valid_y
    units = functional.relu(torch.einsum("si,nwi->nsw", functional.pad(x, (0, 1), value=1.0), first))
    logits = torch.einsum("nsw,ncw->nsc", functional.pad(units[..., :-1], (0, 1), value=1.0), last)
    torch.testing.assert_close(measured.accuracy, (logits.argmax(dim=2) == y).float().mean(dim=1))
    torch.testing.assert_close(
        measured.loss, torch.stack([functional.cross_entropy(own, y) for own in logits])
    )


def test_a_blueprint_has_its_own_weights_alone() -> None:
    """After training nothing is outside its units and pixels, so no more than its size states."""
    for number, blueprint in enumerate(MLP[:-1]):
        hosts = begun()
        assert isinstance(hosts, MLPHosts)
        for _ in range(4):
            hosts.train(wiring(1.0, blueprint=number, algorithm=number % 3))
        first, last = hosts.branches.weights
        weights = [*(first != 0).flatten(1).sum(dim=1), *(last != 0).flatten(1).sum(dim=1)]

        assert bool((first[:, hosts._seen[number] == 0] == 0).all()), blueprint.id
        assert sum(int(count) for count in weights) <= NUM_HOSTS * int(hosts.sizes[number])
        assert bool((last[:, :, blueprint.width : -1] == 0).all())
        assert bool(first.any())


def test_only_what_is_live_is_computed() -> None:
    """Rows are sorted by how they blend; the no-op, and slots that neither learn nor count, are left out."""
    present = live(mixed(), len(MLP))

    assert present.rows.tolist() == [0, 5, 1, 3, 2, 4, 6]
    assert (present.multiply, present.gate) == (slice(2, 4), slice(4, 7))
    assert present.owner.tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert present.counts == (2, 2, 2, 1, 0)
    assert present.any_isolated
