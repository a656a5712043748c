"""Hosts: what is grown is harmless at first, isolated in training, and measured by ablation."""

from dataclasses import replace

import torch

from overwatch_rl.worlds.morphogenesis.actions import NO_OP, Style
from overwatch_rl.worlds.morphogenesis.hosts import BLUEPRINTS, LEARNING_RATE, Hosts, Wiring

NUM_HOSTS = 3
EVERYWHERE = torch.ones(NUM_HOSTS, dtype=torch.bool)


def wiring(
    alpha: float, *, isolated: bool = False, blueprint: int = 0, style: int = 0, slots: int = 1
) -> Wiring:
    """All slots of all hosts connected the same way."""
    shape = (NUM_HOSTS, slots)
    return Wiring(
        alpha=torch.full(shape, alpha),
        isolated=torch.full(shape, isolated),
        blueprint=torch.full(shape, blueprint),
        style=torch.full(shape, style),
    )


def bare(slots: int = 1) -> Wiring:
    """No branch anywhere."""
    return wiring(0.0, blueprint=-1, slots=slots)


def mixed() -> Wiring:
    """Three slots: all ways to blend, connected or isolated or absent, several blueprints and the no-op."""
    noop = len(BLUEPRINTS) - 1
    return Wiring(
        alpha=torch.tensor([[0.5, 1.0, 0.7], [0.0, 0.3, 0.0], [0.0, 0.0, 0.0]]),
        isolated=torch.tensor([[False, False, False], [True, False, True], [True, False, True]]),
        blueprint=torch.tensor([[0, 1, 2], [3, 0, 1], [2, -1, noop]]),
        style=torch.tensor([[0, 1, 3], [1, 3, 0], [3, 0, 2]]),
    )


def begun(wired: Wiring) -> Hosts:
    """New hosts with the branches of a wiring germinated."""
    hosts = Hosts(*wired.alpha.shape)
    hosts.seed(3)
    hosts.restart(EVERYWHERE)
    hosts.germinate(wired.blueprint >= 0, wired.blueprint)
    return hosts


def test_blueprints_differ() -> None:
    """Ids, codes and sizes are unique, and the last does nothing."""
    assert len({row.id for row in BLUEPRINTS}) == len({row.code for row in BLUEPRINTS}) == len(BLUEPRINTS)
    assert BLUEPRINTS[-1].id == NO_OP
    sizes = begun(bare()).sizes
    assert sizes[-1] == 0
    assert len(sizes.unique()) == len(BLUEPRINTS)


def test_a_branch_in_isolation_learns_and_does_not_touch_its_host() -> None:
    """Whatever its blueprint and style: connecting it lowers the loss; the host is the same to the bit."""
    for blueprint in range(len(BLUEPRINTS) - 1):
        style = blueprint % len(Style)
        wired = wiring(0.0, isolated=True, blueprint=blueprint, style=style)
        alone, beside = begun(wired), begun(wired)
        for _ in range(21):
            alone.train(bare())
            beside.train(wired)
        without = beside.validate(bare())
        joined = beside.validate(wiring(1.0, blueprint=blueprint, style=style))

        assert torch.equal(alone.validate(bare()).loss, without.loss)
        assert (without.loss - joined.loss).max() > 0.005, BLUEPRINTS[blueprint].id


def test_a_new_branch_changes_nothing() -> None:
    """It gives zero, so even fully connected, whichever way it blends, it leaves the loss as it is."""
    for style in Style:
        wired = wiring(1.0, blueprint=2, style=int(style))
        hosts = begun(wired)
        connected = hosts.validate(wired)

        torch.testing.assert_close(hosts.validate(bare()).loss, connected.loss)
        assert torch.equal(connected.contribution, torch.zeros(NUM_HOSTS, 1))


def test_contribution_is_what_accuracy_would_change_by() -> None:
    """Of each branch that is connected or isolated, by the accuracy of subsets; absent where none is."""
    connected = mixed()
    hosts = begun(connected)
    for _ in range(4):
        hosts.train(connected)
    measured = hosts.validate(connected)
    subsets = torch.cat([torch.ones(1, 3, dtype=torch.bool), ~torch.eye(3, dtype=torch.bool)])
    accuracy = hosts.masked(connected, subsets)

    torch.testing.assert_close(accuracy[:, 0], measured.accuracy)
    torch.testing.assert_close(measured.contribution[0], accuracy[0, 0] - accuracy[0, 1:])
    torch.testing.assert_close(measured.contribution[1, 1], accuracy[1, 0] - accuracy[1, 2])
    alpha = connected.alpha.clone()
    alpha[1, 0] = 1.0
    added = hosts.masked(replace(connected, alpha=alpha), subsets[:1])
    torch.testing.assert_close(measured.contribution[1, 0], added[1, 0] - measured.accuracy[1])
    assert measured.contribution[2].isnan().tolist() == [False, True, True]


def test_a_saved_host_comes_back() -> None:
    """Those that roll back are as they were, branches and optimisers too; the others stay."""
    connected = mixed()
    hosts = begun(connected)
    hosts.train(connected)
    hosts.save(EVERYWHERE)
    before = hosts.state_dict()
    hosts.train(connected)
    after = hosts.state_dict()
    hosts.roll_back(torch.tensor([False, True, False]))

    for name, tensor in hosts.tensors.items():
        assert torch.equal(tensor[1], before[name][1]), name
        assert torch.equal(tensor[[0, 2]], after[name][[0, 2]]), name
    assert not torch.equal(before["host.first"], after["host.first"])


def test_each_row_takes_the_steps_of_adam() -> None:
    """Rows of different age, beside torch's own with the same gradients."""
    hosts = begun(mixed())
    rows = [0, 4]
    theirs = [hosts.tensors["branch.last"].flatten(0, 1)[row].clone().requires_grad_() for row in rows]
    optimizers = [torch.optim.Adam([weight], lr=LEARNING_RATE, eps=1e-8) for weight in theirs]
    draws = torch.Generator().manual_seed(1)
    first = hosts.tensors["branch.first"].flatten(0, 1)
    for step in range(5):
        taking = rows if step > 1 else rows[:1]
        gradients = torch.randn((len(taking), *theirs[0].shape), generator=draws)
        hosts._descend("branch", torch.tensor(taking), (torch.zeros_like(first[taking]), gradients))
        for place, gradient in enumerate(gradients):
            theirs[place].grad = gradient
            optimizers[place].step()

    torch.testing.assert_close(hosts.tensors["branch.last"].flatten(0, 1)[rows], torch.stack(theirs))


def test_gradients_are_of_the_branches_that_learn() -> None:
    """Health and share are in 0..1, ratio agrees with health; a slot without a live branch has none."""
    connected = mixed()
    hosts = begun(connected)
    result = [hosts.train(connected) for _ in range(3)][-1]

    is_live = torch.tensor([[True, True, True], [True, True, True], [True, False, False]])
    for values in (result.health, result.ratio, result.share):
        assert torch.equal(~values.isnan(), is_live)
    health, ratio, share = (values[is_live] for values in (result.health, result.ratio, result.share))
    assert bool(((health >= 0) & (health <= 1) & (share >= 0) & (share <= 1)).all())
    torch.testing.assert_close(health, torch.minimum(ratio, 1 / ratio))
    assert bool(result.is_finite.all())


def test_a_branch_that_is_hardly_let_in_hardly_feels_the_loss() -> None:
    """Its ratio and its share of the gradient fall with alpha."""
    results = []
    for alpha in (0.001, 0.5):
        hosts = begun(wiring(0.5))
        hosts.train(wiring(0.5))
        results.append(hosts.train(wiring(alpha)))
    weak, strong = results

    assert bool((weak.ratio < strong.ratio / 10).all() & (weak.share < strong.share / 10).all())


def test_a_branch_stays_inside_its_blueprint() -> None:
    """Weights of units and pixels that it does not have are zero after training as before."""
    centre = next(number for number, row in enumerate(BLUEPRINTS) if row.margin)
    wired = wiring(1.0, blueprint=centre)
    hosts = begun(wired)
    for _ in range(3):
        hosts.train(wired)
    pixels = hosts.tensors["branch.first"][..., :-1].unflatten(-1, (8, 8))

    assert not bool(pixels[..., 0, :].any() | pixels[..., -1, :].any() | pixels[..., 0].any())
    assert bool(pixels[..., 1:-1, 1:-1].any())


def test_a_host_that_breaks_is_named_and_classifies_nothing() -> None:
    """Only that host: a weight that is not a number."""
    hosts = begun(bare())
    hosts.tensors["host.first"][1] = torch.nan

    assert hosts.train(bare()).is_finite.tolist() == [True, False, True]
    measured = hosts.validate(bare())
    assert measured.accuracy[1] == 0
    assert measured.loss.isfinite().tolist() == [True, False, True]
    assert bool((measured.accuracy[[0, 2]] > 0).all())
