"""Networks: shapes, layouts, seeds, and what is refused."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from overwatch_rl.algorithms.networks import NETWORKS, Encoder, Pair, Recurrent, Size, network
from overwatch_rl.types import ActionSpec, Box, Factored, Head, ObservationSpec, SlotLayout
from tests.overwatch_rl.algorithms.small import CODES, MOVES, SLOTS, SPEC, VECTOR

FITTING: dict[str, tuple[ObservationSpec, ActionSpec]] = {
    "mlp": (CODES, SPEC), "conv": (CODES, SPEC), "slots": (SLOTS, SPEC), "slots_recurrent": (SLOTS, SPEC),
    "mlp_recurrent": (VECTOR, SPEC), "conv_recurrent": (CODES, SPEC),
}  # fmt: skip
"""What each row of the table may be made for."""
IMAGE = ObservationSpec(shape=(3, 5, 5), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("mlp", VECTOR), ("mlp", CODES), ("mlp", IMAGE), ("conv", CODES), ("conv", IMAGE), ("slots", SLOTS),
        ("slots_recurrent", SLOTS),
    ],
)  # fmt: skip
def test_a_network_gives_outputs_and_values(name: str, spec: ObservationSpec) -> None:
    """B L and B, from the world's own dtype."""
    made = network(name, spec, SPEC, torch.Generator().manual_seed(0))
    outputs, values = made(torch.ones(6, *spec.shape, dtype=spec.dtype))

    assert (outputs.shape, values.shape) == ((6, SPEC.num_outputs), (6,))
    assert values.dtype is torch.float32


def test_codes_are_looked_up_in_the_table() -> None:
    """Each cell becomes the channels of its code."""
    spec = ObservationSpec(shape=(1, 2), dtype=torch.int8, codes=((0.0, 0.5), (1.0, 0.9)))
    found = Encoder(spec)(torch.tensor([[[1, 0]]], dtype=torch.int8))

    assert torch.equal(found, torch.tensor([[[[1.0, 0.0]], [[0.9, 0.5]]]]))


@pytest.mark.parametrize("spec", [CODES, IMAGE], ids=["codes", "image"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_lie_in_memory_as_was_chosen(spec: ObservationSpec, layout: torch.memory_format) -> None:
    """In either layout, with the same numbers."""
    encode = Encoder(spec)
    seen = torch.randint(3, (4, *spec.shape), generator=torch.Generator().manual_seed(0)).to(spec.dtype)
    plain = encode(seen)
    encode.layout = layout

    assert encode(seen).is_contiguous(memory_format=layout)
    assert torch.equal(encode(seen), plain)


def test_bytes_become_shares_of_255() -> None:
    """An image of 255 is one."""
    assert torch.equal(
        Encoder(IMAGE)(torch.full((1, 3, 5, 5), 255, dtype=torch.uint8)), torch.ones(1, 3, 5, 5)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_the_last_layers_compute_in_fp32_under_autocast(name: str) -> None:
    """Whatever the precision around them, which is that of the layers before; a memory adds up in it too."""
    spec, action = FITTING[name]
    made = network(name, spec, action, torch.Generator().manual_seed(0))
    seen: dict[str, torch.dtype] = {}
    for path, layer in made.named_modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_hook(lambda _, __, found, path=path: seen.update({path: found.dtype}))  # type: ignore[misc]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, values = made(torch.zeros(2, *spec.shape, dtype=spec.dtype))
    last = [made.value, *(layer for layer, _ in made.last_layers())]
    paths = {path for path, layer in made.named_modules() if any(layer is one for one in last)}
    paths |= {path for path in seen if path.startswith("remember.")}

    assert (outputs.dtype, values.dtype) == (torch.float32, torch.float32)
    assert {path for path, dtype in seen.items() if dtype is torch.float32} == paths
    others = {dtype for path, dtype in seen.items() if path not in paths}
    assert others == (set() if name == "mlp" else {torch.bfloat16})


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_of_the_last_layers_are_of_the_heads_that_they_name(name: str) -> None:
    """The outputs of one head have a gradient in its rows, and in no other."""
    spec, action = FITTING[name]
    made = network(name, spec, action, torch.Generator().manual_seed(0))
    seen = torch.ones(2, *spec.shape, dtype=spec.dtype)
    for head in range(len(SPEC.heads)):
        made.zero_grad()
        made(seen)[0].split(SPEC.sizes, dim=1)[head].sum().backward()
        for layer, rows in made.last_layers():
            assert layer.bias.grad is not None
            assert (layer.bias.grad != 0).tolist() == [row == head for row in rows]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_generator_makes_the_same_network(name: str) -> None:
    """Weights come from the passed generator alone."""
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(network(name, *FITTING[name], torch.Generator().manual_seed(5)).state_dict())

    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def slotted(count: int) -> tuple[ObservationSpec, Factored]:
    """So many slots of three features behind two shared ones, and an action that chooses one."""
    layout = SlotLayout(shared=2, count=count, width=3)
    op, _, kind = SPEC.heads
    slot = Head(name="slot", labels=tuple(f"s{number}" for number in range(count)))
    return ObservationSpec(shape=(2 + 3 * count,), slots=layout), replace(SPEC, heads=(op, slot, kind))


@pytest.mark.parametrize("name", ["slots", "slots_recurrent"])
def test_slots_that_change_places_change_their_scores_with_it_and_nothing_else(name: str) -> None:
    """Also through a memory: two steps, in which the order is the same."""
    spec, action = slotted(5)
    made = network(name, spec, action, torch.Generator().manual_seed(0))
    draws = torch.Generator().manual_seed(1)
    shared, slots = torch.randn(2, 4, 2, generator=draws), torch.randn(2, 4, 5, 3, generator=draws)
    order = torch.tensor([3, 0, 4, 1, 2])

    def found(slots: Tensor) -> tuple[list[Tensor], Tensor]:
        features = torch.cat([shared, slots.flatten(2)], dim=2)
        if not isinstance(made, Recurrent):
            outputs, values = made(features[1])
        else:
            begins = torch.zeros(2, 4, dtype=torch.bool)
            unrolled = made.unroll(features, torch.zeros(4, made.num_memory), begins)
            outputs, values = unrolled[0][1], unrolled[1][1]
        return action.unpack(outputs), values

    (ops, chosen, kinds), values = found(slots)
    (other_ops, other_chosen, other_kinds), other_values = found(slots[:, :, order])
    same = partial(torch.allclose, atol=1e-6)
    assert same(chosen[:, :, order], other_chosen)
    assert not same(chosen, other_chosen)
    assert same(ops, other_ops)
    assert same(kinds, other_kinds)
    assert same(values, other_values)


@pytest.mark.parametrize("name", ["slots", "slots_recurrent"])
def test_a_network_of_slots_takes_any_number_of_them(name: str) -> None:
    """The same weights, of an env with two slots; a third of which all is as of the first is scored as it."""
    few, more = (network(name, *slotted(count), torch.Generator().manual_seed(count)) for count in (2, 3))
    more.load_state_dict(few.state_dict())
    seen = torch.randn(4, 11, generator=torch.Generator().manual_seed(0))
    seen[:, 8:] = seen[:, 2:5]
    scores = slotted(3)[1].unpack(more(seen)[0])[1]

    assert torch.allclose(scores[:, :, 2], scores[:, :, 0])
    assert not torch.allclose(scores[:, :, 1], scores[:, :, 0])


def test_what_does_not_fit_is_refused() -> None:
    """A name that does not exist, a vector for convolutions, no slots; each error names the fix."""
    with pytest.raises(
        ValueError, match="network 'lstm' does not exist; use one of conv, conv_recurrent, mlp"
    ):
        network("lstm", VECTOR, SPEC, torch.Generator())
    with pytest.raises(ValueError, match="use network 'mlp'"):
        network("conv", VECTOR, SPEC, torch.Generator())
    for spec, action in ((VECTOR, SPEC), (SLOTS, MOVES), (SLOTS, Box(low=(0.0,), high=(1.0,)))):
        with pytest.raises(ValueError, match="'slots' needs a world with slots that an action chooses; use"):
            network("slots", spec, action, torch.Generator())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"shared": -1, "count": 1, "width": 1}, "shared of the slots is -1; use 0 or more"),
        ({"shared": 0, "count": 0, "width": 1}, "count of the slots is 0; use 1 or more"),
        ({"shared": 0, "count": 1, "width": 0}, "width of the slots is 0; use 1 or more"),
        ({"shared": 1, "count": 2, "width": 2}, "1 features and 2 slots of 2 has another shape than"),
    ],
)
def test_slots_that_are_not_in_the_observation_are_refused(words: dict[str, int], error: str) -> None:
    """By what is wrong."""
    with pytest.raises(ValueError, match=error):
        ObservationSpec(shape=(4,), slots=SlotLayout(**words))


def test_layers_are_as_wide_and_as_many_as_was_set() -> None:
    """Of the body, with the activation that was named; what is impossible is refused."""
    made = network("mlp", VECTOR, SPEC, torch.Generator(), Size(width=16, depth=3, activation="relu"))
    layers = [one.weight for one in made.body if isinstance(one, Pair)]

    assert [tuple(one.shape) for one in layers] == [(2, inputs, 16) for inputs in (4, 16, 16)]
    assert sum(isinstance(one, torch.nn.ReLU) for one in made.body) == 3
    with pytest.raises(ValueError, match="depth is 0; use 1 or more"):
        Size(depth=0)
    with pytest.raises(ValueError, match="activation is 'sin'; use one of tanh, relu"):
        Size(activation="sin")


def test_convolutions_of_large_pictures_have_strides() -> None:
    """Those of Atari's: 1.7 million weights, where each cell of 84 x 84 would give 231 million."""
    made = network("conv", ObservationSpec(shape=(4, 84, 84), dtype=torch.uint8), MOVES, torch.Generator())

    assert sum(one.numel() for one in made.parameters()) == 1_686_693
