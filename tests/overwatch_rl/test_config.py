"""What a training run states of its settings."""

import re
import sys
from pathlib import Path
from typing import Final, cast

import pytest
import torch

from overwatch.extras import TENSORBOARD
from overwatch_rl.config import TrainFlags, TrainSettings, device_named, mode_commands, train_settings

FLAGS: Final = TrainFlags(
    world="morphogenesis", algorithm="ppo", envs=2, slots=None, mode=None, settings=(), own={},
    steps=8, updates=3,
    seconds=None, seed=0, lr=1e-3, epochs=1, minibatches=1, network=None, target_kl=0.02, gamma=None,
    anneal_updates=None, normalise_observations=None, plan="auto", threads=1, device="cpu", out=None,
    view=False, run_id=None, endpoint=None, telemetry=True, tensorboard=None, alive=None,
)  # fmt: skip


def given(**flags: object) -> TrainFlags:
    """The flags above, some of them others."""
    return cast("TrainFlags", dict(FLAGS) | flags)


def _settings(*ppo: str) -> TrainSettings:
    """Those of a small run with these words for PPO."""
    return train_settings(given(slots=1, own={"ppo": ppo}))


def test_settings_of_ppo_without_a_flag_are_read_as_their_kind() -> None:
    """Numbers, truths, `none`, and how advantages are estimated; the run declares them."""
    words = ("max_grad_norm=2", "popart=true", "anneal_updates=7", "value_clip=none", "gamma=0.5")
    settings = _settings(*words)
    ppo = settings.learned

    assert (ppo.max_grad_norm, ppo.popart, ppo.anneal_updates, ppo.value_clip) == (2.0, True, 7, None)
    assert (ppo.gamma, ppo.gae_lambda) == (0.5, _settings().learned.gae_lambda)
    assert (settings.described["max_grad_norm"], settings.described["gamma"]) == ("2.0", "0.5")


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("clip", "--ppo 'clip' has no value"),
        ("clipp=1", "ppo has no setting 'clipp'; its settings are activation, anneal_updates"),
        ("clip=x", "ppo.clip is 'x'; use a number"),
    ],
)
def test_a_setting_of_ppo_that_is_wrong_is_named(word: str, error: str) -> None:
    """With its value, and what it may be."""
    with pytest.raises(ValueError, match=re.escape(error)):
        _settings(word)


def test_a_policy_with_memory_needs_an_env_for_each_minibatch() -> None:
    """Its batch is cut between envs only; the error gives both numbers."""
    own = {"ppo": ("network=slots_recurrent",)}
    with pytest.raises(ValueError, match="2 whole envs are too few for 3 minibatches; use more envs"):
        train_settings(given(own=own, minibatches=3))
    assert train_settings(given(own=own, minibatches=2)).learned.network == "slots_recurrent"
    with pytest.raises(ValueError, match="8 steps of 2 envs are too few for 17 minibatches"):
        train_settings(given(minibatches=17))


def test_a_run_declares_what_its_numbers_are_judged_by() -> None:
    """The tower is sent the target KL and the norm at which gradients are clipped; not where files go."""
    described = train_settings(given(slots=1)).described

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


def test_the_learners_own_settings_are_flags() -> None:
    """Discount, annealing and normalised observations; without a flag they are the preset's."""
    flags = given(world="gym:CartPole-v1", gamma=0.9, anneal_updates=7, normalise_observations=True)
    ppo, described = train_settings(flags).learned, train_settings(flags).described
    plain = train_settings(given(world="gym:CartPole-v1"))

    assert (ppo.gamma, ppo.gae_lambda) == (0.9, 0.95)
    assert (ppo.anneal_updates, ppo.normalise_observations) == (7, True)
    assert [described[name] for name in ("gamma", "anneal_updates", "normalise_observations")] == [
        "0.9", "7", "True",
    ]  # fmt: skip
    kept = plain.learned
    assert (kept.gamma, kept.anneal_updates, kept.normalise_observations) == (0.99, None, False)
    assert plain.described["normalise_observations"] == "False"


@pytest.mark.parametrize("settings", [(), ("gamma=0.9",)])
def test_a_shaped_reward_has_the_discount_of_the_learner(settings: tuple[str, ...]) -> None:
    """One value for a run: the world is given the learner's, and may be given the same."""
    found = train_settings(given(world="goodhart:small", gamma=0.9, settings=settings))

    assert (float(str(found.world_settings["gamma"])), found.learned.gamma) == (0.9, 0.9)
    assert train_settings(given(world="goodhart")).world_settings["gamma"] == 0.99


def test_two_discounts_in_one_run_are_refused() -> None:
    """With another one the shaping moves the optimum: the error names both and what to give."""
    with pytest.raises(ValueError, match=r"goodhart:small is 0.8 and the learner's is 0.99; .*--gamma"):
        train_settings(given(world="goodhart:small", settings=("gamma=0.8",)))
    with pytest.raises(ValueError, match=r"gamma of goodhart is much and the learner's is 0.5"):
        train_settings(given(world="goodhart", gamma=0.5, settings=("gamma=much",)))


def test_a_world_without_shaping_is_given_no_discount() -> None:
    """It has no such setting."""
    assert "gamma" not in train_settings(given(world="gym:CartPole-v1", gamma=0.5)).world_settings


@pytest.mark.parametrize(("value", "word"), [(True, "--normalise-observations"), (None, None)])
def test_a_process_of_a_mode_is_given_the_same_flags(*, value: bool | None, word: str | None) -> None:
    """A flag that was not typed is none; one that is off is its own word."""
    flags = given(world="goodhart", mode="proxy", normalise_observations=value, gamma=0.9, telemetry=False)
    [(_, _, words)] = mode_commands(flags)

    assert words[words.index("--gamma") + 1] == "0.9"
    assert "--no-telemetry" in words
    assert [one for one in words if "normalise" in one] == ([] if word is None else [word])
    [(_, _, off)] = mode_commands(given(world="goodhart", mode="proxy", normalise_observations=False))
    assert "--no-normalise-observations" in off


def test_each_mode_shows_by_a_folder_of_its_own_that_it_goes_on() -> None:
    """A file of one is not touched by another."""
    found = mode_commands(given(world="goodhart", mode="all", alive=Path("alive")))

    assert len(found) > 1
    assert [words[words.index("--alive") + 1] for _, _, words in found] == [
        f"alive/{mode}" for mode, _, _ in found
    ]


def test_event_files_lie_where_the_flag_names_else_in_the_folder_of_the_run() -> None:
    """Each mode has a folder of its own in either; the run does not declare it."""
    beside, given_one = (
        train_settings(given(out=Path("run"), tensorboard=word)).tensorboard for word in ("", "board")
    )
    described = train_settings(given(out=Path("run"), tensorboard="")).described
    modes = [
        mode_commands(given(world="goodhart", mode="proxy", out=Path("run"), tensorboard=word))[0]
        for word in ("", "board")
    ]

    assert (beside, given_one) == (Path("run/tensorboard"), Path("board"))
    assert "tensorboard" not in described
    assert [train_settings(own).tensorboard for _, own, _ in modes] == [
        Path("run/proxy/tensorboard"), Path("board/proxy"),
    ]  # fmt: skip
    assert [words[words.index("--tensorboard") + 1] for _, _, words in modes] == ["", "board/proxy"]


def test_event_files_need_a_process_that_writes_and_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error names what to give or to install."""
    with pytest.raises(ValueError, match="--tensorboard needs --out FOLDER"):
        train_settings(given(tensorboard="board"))
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match=re.escape(TENSORBOARD.install)):
        train_settings(given(out=Path("run"), tensorboard=""))
