"""What a training run says of its settings."""

import re

import pytest
import torch

from overwatch_rl.config import TrainFlags, TrainSettings, device_named, train_settings


def _settings(*ppo: str) -> TrainSettings:
    """Those of a small run with these words for PPO."""
    flags = TrainFlags(
        world="morphogenesis", envs=2, slots=1, mode=None, settings=(), ppo=ppo, steps=8, updates=3,
        seconds=None, seed=0, lr=1e-3, epochs=1, minibatches=1, network=None, target_kl=0.02,
        plan="auto", threads=1, device="cpu", out=None, view=False, run_id=None, endpoint=None,
        telemetry=True,
    )  # fmt: skip
    return train_settings(flags)


def test_settings_of_ppo_without_a_flag_are_read_as_their_kind() -> None:
    """Numbers, truths, `none`, and how advantages are estimated; the run declares them."""
    words = ("max_grad_norm=2", "popart=true", "anneal_updates=7", "value_clip=none", "returns.gamma=0.5")
    settings = _settings(*words)
    ppo = settings.ppo

    assert (ppo.max_grad_norm, ppo.popart, ppo.anneal_updates, ppo.value_clip) == (2.0, True, 7, None)
    assert (ppo.returns.gamma, ppo.returns.lam) == (0.5, _settings().ppo.returns.lam)
    assert (settings.described["max_grad_norm"], settings.described["gamma"]) == ("2.0", "0.5")


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("clip", "--ppo 'clip' has no value"),
        ("clipp=1", "ppo has no setting 'clipp'; its settings are anneal_updates, clip"),
        ("clip=x", "ppo.clip is 'x'; use a number"),
        ("returns.gama=1", "ppo.returns has no setting 'gama'; its settings are gamma"),
        ("returns=1", "ppo.returns is '1'; write returns.gamma"),
    ],
)
def test_a_setting_of_ppo_that_is_wrong_is_named(word: str, error: str) -> None:
    """With its value, and what it may be."""
    with pytest.raises(ValueError, match=re.escape(error)):
        _settings(word)


def test_a_run_declares_what_its_numbers_are_judged_by() -> None:
    """The tower is told the target KL and the norm at which gradients are clipped; not where files go."""
    described = _settings().described

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
