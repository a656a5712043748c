"""What a training run says of its settings."""

import pytest
import torch

from overwatch_rl.config import TrainFlags, device_named, train_settings


def test_a_run_declares_what_its_numbers_are_judged_by() -> None:
    """The tower is told the target KL and the norm at which gradients are clipped; not where files go."""
    flags = TrainFlags(
        world="morphogenesis", envs=2, slots=1, mode=None, settings=(), steps=8, updates=3,
        seconds=None, seed=0, lr=1e-3, epochs=1, minibatches=1, network=None, target_kl=0.02,
        plan="auto", threads=1, device="cpu", out=None, view=False, run_id=None, endpoint=None,
        telemetry=True,
    )  # fmt: skip
    described = train_settings(flags).described

    assert (described["target_kl"], described["max_grad_norm"], described["envs"]) == ("0.02", "0.5", "2")
    assert "out" not in described


@pytest.mark.parametrize(
    ("name", "gpus", "found"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cuda:1", 2, "cuda:1"), ("cpu", 2, "cpu")],
)
def test_a_device_is_chosen_by_what_there_is(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int, found: str
) -> None:
    """`auto` takes a GPU where torch sees one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    assert device_named(name) == found


@pytest.mark.parametrize(
    ("name", "error"), [("tpu", "use auto, cpu"), ("cuda:2", "sees 2 GPUs"), ("cuda:x", "use auto")]
)
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, error: str
) -> None:
    """The error names it and what to use."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    with pytest.raises(ValueError, match=f"device is '{name}'.*{error}"):
        device_named(name)
