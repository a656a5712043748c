"""CNN hosts: blueprints as they are described, before and after each pooling."""

import torch
from torch.nn import functional

from overwatch_rl.worlds.morphogenesis.hosts.blueprints import CNN
from overwatch_rl.worlds.morphogenesis.hosts.cnn import BLOCKS, CHANNELS, FORMS, CNNHosts, _conv
from tests.overwatch_rl.worlds.morphogenesis.hosts.begun import begun, wiring


def test_each_blueprint_has_a_form() -> None:
    """In the registry's order, with as many tensors as are zero at germination at least."""
    assert tuple(FORMS) == tuple(blueprint.id for blueprint in CNN)
    assert all(len(form.shapes) >= form.zeros for form in list(FORMS.values())[:-1])


def test_a_grouped_convolution_is_one_a_row() -> None:
    """Each row's images pass its own weights."""
    x, weight = torch.randn(5, 3, CHANNELS, 6, 6), torch.randn(3, 2, CHANNELS, 3, 3)
    rows = [functional.conv2d(x[:, row], weight[row], padding=1) for row in range(3)]

    torch.testing.assert_close(_conv(x, weight), torch.stack(rows, dim=1))


def test_a_slot_lies_before_or_after_a_pooling() -> None:
    """Every slot of two rows of blocks matters: the same branch gives other losses in each."""
    slots = 2 * BLOCKS
    hosts = begun("cnn", slots=slots)
    assert isinstance(hosts, CNNHosts)
    heavy = wiring(1.0, blueprint=6, slots=slots)
    hosts.cut(heavy)
    drawn = torch.randn(1, hosts.branches.weights[0].shape[1])
    hosts.branches.weights[0].copy_(drawn.expand_as(hosts.branches.weights[0]))
    losses = torch.stack(
        [
            hosts.validate(
                type(heavy)(
                    alpha=torch.eye(slots)[slot].expand(3, -1),
                    isolated=heavy.isolated,
                    blueprint=heavy.blueprint,
                    algorithm=heavy.algorithm,
                )
            ).loss
            for slot in range(slots)
        ]
    )

    assert len(losses[:, 0].unique()) == slots


def test_attention_weighs_channels_only() -> None:
    """Its term is the features times one number a channel between -1 and 1."""
    form = FORMS["attention"]
    x = torch.rand(2, 3, CHANNELS, 4, 4) + 0.5
    weights = [torch.randn(3, *shape) for shape in form.shapes]
    share = form.run(x, weights) / x

    assert bool((share.std(dim=(3, 4)) < 1e-6).all())
    assert bool((share.abs() <= 1).all())
