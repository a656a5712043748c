"""Networks: shapes, layouts, seeds, and what is refused."""

import pytest
import torch

from overwatch_rl.algorithms.networks import NETWORKS, Encoder, network
from overwatch_rl.types import ObservationSpec
from tests.overwatch_rl.algorithms.small import CODES, VECTOR

IMAGE = ObservationSpec(shape=(3, 5, 5), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "spec"), [("mlp", VECTOR), ("mlp", CODES), ("mlp", IMAGE), ("conv", CODES), ("conv", IMAGE)]
)
def test_a_network_gives_outputs_and_values(name: str, spec: ObservationSpec) -> None:
    """B L and B, from the world's own dtype."""
    made = network(name, spec, 7, torch.Generator().manual_seed(0))
    outputs, values = made(torch.ones(6, *spec.shape, dtype=spec.dtype))

    assert (outputs.shape, values.shape) == ((6, 7), (6,))
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


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_last_layers_compute_in_fp32_under_autocast(name: str) -> None:
    """Whatever the precision around them, which is that of the layers before."""
    made = network(name, CODES, 3, torch.Generator().manual_seed(0))
    seen: list[torch.dtype] = []
    for layer in made.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_hook(lambda _, __, found: seen.append(found.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, values = made(torch.zeros(2, 3, 3, dtype=torch.int8))

    assert (outputs.dtype, values.dtype) == (torch.float32, torch.float32)
    assert seen.count(torch.float32) == 2
    assert seen.count(torch.bfloat16) == len(seen) - 2 > 0


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_same_generator_makes_the_same_network(name: str) -> None:
    """Weights come from the passed generator alone."""
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(network(name, CODES, 3, torch.Generator().manual_seed(5)).state_dict())

    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_what_does_not_fit_is_refused() -> None:
    """A name that does not exist, and a vector for convolutions; both errors name the fix."""
    with pytest.raises(ValueError, match="network 'lstm' does not exist; use one of conv, mlp"):
        network("lstm", VECTOR, 3, torch.Generator())
    with pytest.raises(ValueError, match="use 'mlp'"):
        network("conv", VECTOR, 3, torch.Generator())
