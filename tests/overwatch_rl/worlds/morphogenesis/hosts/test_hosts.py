"""Hosts: what is grown is harmless at first, isolated in training, and measured by ablation."""

import torch

from overwatch_rl.worlds.morphogenesis.hosts.base import Blend
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP, NOOP
from tests.overwatch_rl.worlds.morphogenesis.hosts.begun import NUM_HOSTS, bare, begun, mixed, wiring


def test_blueprints_differ() -> None:
    """Ids, codes and sizes are unique, and the last does nothing."""
    assert len({row.id for row in MLP}) == len({row.code for row in MLP}) == len(MLP)
    assert [row.id for row in MLP].index(NOOP) == len(MLP) - 1
    sizes = begun().sizes
    assert sizes[-1] == 0
    assert len(sizes.unique()) == len(MLP)


def test_hosts_learn() -> None:
    """Some steps are better than none by far."""
    hosts = begun()
    before = hosts.validate(bare()).loss.mean()
    for _ in range(20):
        hosts.train(bare())

    assert hosts.validate(bare()).loss.mean() < before - 0.2


def test_a_branch_in_isolation_does_not_touch_its_host() -> None:
    """The host's loss is the same to the last bit with and without it."""
    alone, beside = begun(), begun()
    for _ in range(3):
        alone.train(bare())
        beside.train(wiring(0.0, isolated=True, blueprint=2, algorithm=1))

    assert torch.equal(alone.validate(bare()).loss, beside.validate(bare()).loss)


def test_a_branch_in_isolation_learns() -> None:
    """Whatever its blueprint and the way it will blend, connecting it then lowers a host's loss."""
    hosts = begun()
    for _ in range(12):
        hosts.train(bare())
    hosts.germinate(torch.arange(NUM_HOSTS))
    begin = hosts.state_dict()
    for blueprint in range(len(MLP) - 1):
        algorithm = blueprint % len(Blend)
        hosts.load_state_dict(begin)
        for _ in range(9):
            hosts.train(wiring(0.0, isolated=True, blueprint=blueprint, algorithm=algorithm))
        joined = hosts.validate(wiring(1.0, blueprint=blueprint, algorithm=algorithm))
        better = hosts.validate(bare()).loss - joined.loss

        assert better.max() > 0.005, MLP[blueprint].id


def test_a_new_branch_changes_nothing() -> None:
    """It gives zero, so even fully connected, whichever way it blends, it leaves the loss as it is."""
    hosts = begun()
    without = hosts.validate(bare())
    for algorithm in Blend:
        connected = hosts.validate(wiring(1.0, blueprint=2, algorithm=algorithm))

        torch.testing.assert_close(without.loss, connected.loss)
        assert torch.equal(connected.contribution, torch.zeros(NUM_HOSTS, 1))


def test_contribution_is_what_accuracy_would_change_by() -> None:
    """Of each branch that is connected or isolated, by the accuracy of subsets; absent where none is."""
    hosts, connected = begun(slots=3), mixed()
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
    added = hosts.masked(
        type(connected)(
            alpha=alpha,
            isolated=connected.isolated,
            blueprint=connected.blueprint,
            algorithm=connected.algorithm,
        ),
        subsets[:1],
    )
    torch.testing.assert_close(measured.contribution[1, 0], added[1, 0] - measured.accuracy[1])
    assert measured.contribution[2].isnan().tolist() == [False, True, True]


def test_hosts_go_back_to_what_was_kept() -> None:
    """Those that roll back are as they were, branches and optimisers too; the others stay."""
    hosts, connected = begun(slots=3), mixed()
    hosts.train(connected)
    hosts.keep(torch.arange(NUM_HOSTS))
    before = hosts.state_dict()
    hosts.train(connected)
    after = hosts.state_dict()
    hosts.roll_back(torch.tensor([1]))

    for name, tensor in hosts.state_dict().items():
        if name.startswith(("hosts.", "branches.")):
            rows = tensor.view(NUM_HOSTS, -1)
            assert torch.equal(rows[1], before[name].view(NUM_HOSTS, -1)[1]), name
            assert torch.equal(rows[[0, 2]], after[name].view(NUM_HOSTS, -1)[[0, 2]]), name
    assert not torch.equal(before["hosts.0"], after["hosts.0"])


def test_a_restart_is_kept() -> None:
    """A host that goes back before anything else was kept is what it began as; the others did not restart."""
    hosts = begun()
    hosts.train(bare())
    trained = hosts.state_dict()["hosts.0"]
    hosts.restart(torch.tensor([2]))
    new = hosts.state_dict()["hosts.0"]
    hosts.train(bare())
    hosts.roll_back(torch.tensor([2]))

    assert torch.equal(hosts.state_dict()["hosts.0"][2], new[2])
    assert torch.equal(new[:2], trained[:2])
    assert not torch.equal(new[2], trained[2])


def test_a_state_goes_on_to_the_bit() -> None:
    """Taken between germination and the wiring that names blueprints, with an older copy kept."""
    hosts, connected = begun(slots=3), mixed()
    hosts.train(connected)
    hosts.germinate(torch.tensor([0, 4]))
    other = begun(slots=3)
    other.load_state_dict(hosts.state_dict())
    for made in (hosts, other):
        made.train(connected)
        made.roll_back(torch.tensor([0]))
        made.restart(torch.tensor([1]))
        made.train(connected)

    first, second = hosts.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_gradients_are_of_the_branches_that_learn() -> None:
    """Health and share lie in 0..1, ratio agrees with health; a slot without a live branch has none."""
    hosts, connected = begun(slots=3), mixed()
    learned = [hosts.train(connected) for _ in range(3)][-1]

    is_live = torch.tensor([[True, True, True], [True, True, True], [True, False, False]])
    for values in (learned.health, learned.ratio, learned.share):
        assert torch.equal(~values.isnan(), is_live)
    health, ratio, share = (values[is_live] for values in (learned.health, learned.ratio, learned.share))
    assert bool(((health >= 0) & (health <= 1) & (share >= 0) & (share <= 1)).all())
    torch.testing.assert_close(health, torch.minimum(ratio, 1 / ratio))
    assert bool((learned.share.nan_to_num().square().sum(dim=1) <= 1.0).all())
    assert bool(learned.is_finite.all())


def test_a_branch_that_is_hardly_let_in_hardly_feels_the_loss() -> None:
    """Its health and its share of the gradient fall with alpha."""

    def learned(alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
        hosts = begun()
        hosts.train(wiring(0.5))
        found = hosts.train(wiring(alpha))
        return found.ratio, found.share

    for weak, strong in zip(learned(0.001), learned(0.5), strict=True):
        assert bool((weak < strong / 10).all())


def test_a_host_that_breaks_is_named_and_classifies_nothing() -> None:
    """Only that host: a weight that is not a number."""
    hosts = begun()
    state = hosts.state_dict()
    state["hosts.0"][1] = torch.nan
    hosts.load_state_dict(state)

    assert hosts.train(bare()).is_finite.tolist() == [True, False, True]
    measured = hosts.validate(bare())
    assert measured.accuracy[1] == 0
    assert measured.loss.isfinite().tolist() == [True, False, True]
    assert bool((measured.accuracy[[0, 2]] > 0).all())


def test_what_is_grown_never_changes_the_data() -> None:
    """Hosts that learn alone have the same weights, whatever germinated beside them."""
    alone, beside = begun(slots=3), begun(slots=3)
    for made, rows in ((alone, []), (beside, [0, 5, 7])):
        made.germinate(torch.tensor(rows, dtype=torch.int64))
        made.train(bare(3))
        made.restart()
        made.train(bare(3))

    assert torch.equal(alone.state_dict()["hosts.0"], beside.state_dict()["hosts.0"])
