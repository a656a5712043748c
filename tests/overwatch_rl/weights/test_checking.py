"""Actor and learner compare their tensors by digest."""

import torch

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.checking import check_weights, digest_of, rounded, shapes_of
from overwatch_rl.weights.manifest import Shape
from tests.overwatch_rl.weights.made import Run, tensors


def test_tensors_that_differ_are_named(run: Run) -> None:
    """One bit, another kind, another shape, one that is missing; further ones do not count."""
    run.put(Version(1, 3))
    acting = run.subscriber().poll()
    assert acting is not None
    state = tensors(Version(1, 3)) | {"optimizer.step": torch.ones(1)}
    assert check_weights(state, acting) == []

    state["policy.w"][7, 1] += 1e-6
    state["policy.scale"] = state["policy.scale"].float()
    state["value.half"] = state["value.half"].view(5, 1)
    del state["none"]
    assert check_weights(state, acting) == ["none", "policy.scale", "policy.w", "value.half"]


def test_a_digest_is_of_the_numbers_and_not_of_their_layout() -> None:
    """A view, channels last and a tensor that learns have that of a plain copy."""
    values = torch.arange(120.0).view(2, 3, 4, 5)
    last = values.contiguous(memory_format=torch.channels_last)

    assert digest_of(values) == digest_of(last) == digest_of(last.clone().requires_grad_())
    assert digest_of(values[:, 1].transpose(1, 2)) == digest_of(values[:, 1].transpose(1, 2).contiguous())
    assert digest_of(values) != digest_of(values.transpose(0, 1))
    assert digest_of(torch.zeros(0, 4)) == digest_of(torch.zeros(0))


def test_shapes_are_named_as_in_a_file() -> None:
    """So that a manifest can be compared with what an actor has."""
    found = shapes_of(
        {"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.bfloat16), "c": torch.ones(1) > 0}
    )

    assert found == {"a": Shape("F32", (2, 3)), "b": Shape("BF16", ()), "c": Shape("BOOL", (1,))}


def test_what_was_published_in_fewer_bits_is_held_in_more(run: Run) -> None:
    """As the number that was published, not as the learner's."""
    run.put(Version(1, 3))
    acting = run.subscriber().poll()
    assert acting is not None
    state = tensors(Version(1, 3))
    state["value.half"] = state["value.half"].float()
    assert check_weights(state, acting) == []
    state["value.half"][0] += 1e-4  # bfloat16 has no such number near 1
    assert check_weights(state, acting) == ["value.half"]


def test_matrices_are_rounded_and_nothing_else() -> None:
    """Vectors may be statistics; other kinds are what they are."""
    held = {
        "w": torch.full((2, 3), 1.001), "bias": torch.full((3,), 1.001),
        "mean": torch.full((2, 3), 1.001, dtype=torch.float64), "codes": torch.ones(2, 2, dtype=torch.int16),
    }  # fmt: skip
    found = rounded(held, "bfloat16")

    assert {name for name in held if found[name] is not held[name]} == {"w"}
    assert found["w"].dtype == torch.bfloat16
    assert all(rounded(held, "float32")[name] is tensor for name, tensor in held.items())
