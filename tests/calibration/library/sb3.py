"""Stable-Baselines3 and sb3-contrib: settings that learn within a minute, and what is done to them.

Owns what a healthy variant changes of the settings, and how a fault reaches a model that trains. The callback
for Overwatch is the one that users have.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise, VectorizedActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from overwatch import sdk
from overwatch.adapters.sb3 import OverwatchCallback
from tests.calibration.library.drawing import Draw, settings_of
from tests.calibration.library.worlds import Fault, build

MOST_CPU_S: Final = 100.0
"""A training that takes longer on this machine ends as one that has done its steps."""
_KINDS: Final[dict[str, type[BaseAlgorithm]]] = {
    "ppo": PPO, "a2c": A2C, "dqn": DQN, "sac": SAC, "td3": TD3, "recurrent-ppo": RecurrentPPO,
    "maskable-ppo": MaskablePPO,
}  # fmt: skip


def _settings(draw: Draw) -> dict[str, Any]:
    """The zoo's settings, those that a user changes without harm drawn anew."""
    case = draw.case
    found = settings_of(case)
    if "n_steps" in found:
        found["n_steps"] = int(found["n_steps"] * draw.one("n_steps", (1, 1, 2)))
    if case.algorithm != "a2c":
        found["batch_size"] = int(found.get("batch_size", 64) * draw.one("batch_size", (1, 1, 2)))
    rate = found.get("learning_rate", 7e-4 if case.algorithm == "a2c" else 3e-4)
    found["learning_rate"] = rate * draw.between("learning_rate", 0.7, 1.3)
    kwargs = dict(found.get("policy_kwargs", {}))
    if draw.case.algorithm in ("ppo", "a2c", "maskable-ppo"):
        kwargs["activation_fn"] = draw.one("activation", (torch.nn.Tanh, torch.nn.Tanh, torch.nn.ReLU))
    found["policy_kwargs"] = kwargs
    if case.algorithm in ("ppo", "maskable-ppo"):
        found["target_kl"] = draw.one("target_kl", (None, None, 0.03))
    _healthy(draw, found)
    if case.kind == "one-transition":
        found |= {"buffer_size": found["n_envs"], "learning_starts": min(found["learning_starts"], 500)}
    if case.kind == "dead-relu" and case.algorithm in ("ppo", "a2c", "maskable-ppo"):
        found["policy_kwargs"]["activation_fn"] = torch.nn.ReLU
    return found


def _healthy(draw: Draw, found: dict[str, Any]) -> None:
    """What a healthy kind changes."""
    kind, rate = draw.case.kind, found["learning_rate"]
    if kind == "schedule":
        found["learning_rate"] = LinearSchedule(rate * 1.5, 0.0, 1.0)
        if "clip_range" not in found and draw.case.algorithm in ("ppo", "maskable-ppo", "recurrent-ppo"):
            found["clip_range"] = LinearSchedule(0.2, 0.02, 1.0)
    elif kind == "warm-restarts":
        cycles = draw.one("cycles", (3, 4, 6))
        found["learning_rate"] = lambda left: (
            rate * (0.1 + 1.2 * (1 + np.cos(np.pi * ((1 - left) * cycles % 1))) / 2)
        )
    elif kind == "large-batch":
        found["batch_size" if "batch_size" in found else "n_steps"] *= 4
    elif kind == "small-batch":
        name = "batch_size" if "batch_size" in found else "n_steps"
        found[name] = max(8 if name == "n_steps" else 16, found[name] // 4)
    elif kind == "normaliser":
        found["normalised"] = True
    elif kind == "slow-learner":
        found["learning_rate"] = rate * draw.between("slower", 0.1, 0.3)


def train(draw: Draw, fault: Fault, begins: float) -> None:
    """Train one; the fault begins after a share of it."""
    torch.manual_seed(draw.seed)
    case, settings = draw.case, _settings(draw)
    n_envs, steps, noise = settings.pop("n_envs"), settings.pop("steps"), settings.pop("noise", None)
    is_normalised = settings.pop("normalised", False) or case.kind == "stale-normaliser"
    is_masked = case.algorithm == "maskable-ppo"

    def make(number: int) -> Callable[[], Any]:
        def made() -> Any:
            env = build(case.world, fault, number)
            return Monitor(ActionMasker(env, lambda one: one.unwrapped.action_masks()) if is_masked else env)

        return made

    env: VecEnv = DummyVecEnv([make(number) for number in range(n_envs)])
    env.seed(draw.seed)
    if is_normalised:
        env = VecNormalize(env, gamma=settings.get("gamma", 0.99))
    if noise is not None:
        size = env.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), noise * np.ones(size))
    policy = "MlpLstmPolicy" if case.algorithm == "recurrent-ppo" else "MlpPolicy"
    model = _KINDS[case.algorithm](policy, env, seed=draw.seed % 100_000, device="cpu", **settings)
    _optimisers(draw, model)
    run = _run(draw, model, settings, n_envs, steps)
    callbacks: list[BaseCallback] = [OverwatchCallback(run), Conductor(draw, fault, begins, steps, run)]
    if case.kind in ("evaluations", "eval-falls"):
        callbacks.append(_evaluation(draw, env, case.world, steps // n_envs))
    given = {"log_interval": 1 if case.world in ("pendulum", "point") else 4} if model_is_off(model) else {}
    if run is None:
        model.learn(steps, callback=CallbackList(callbacks), **given)
        return
    with run:
        model.learn(steps, callback=CallbackList(callbacks), **given)


def model_is_off(model: BaseAlgorithm) -> bool:
    """Whether it is off-policy."""
    return not isinstance(model, OnPolicyAlgorithm)


def _run(draw: Draw, model: Any, settings: dict[str, Any], n_envs: int, steps: int) -> sdk.Run | None:
    """A run that the program starts itself, where it announces something besides."""
    if draw.case.kind not in ("curriculum", "checkpoints", "pauses"):
        return None
    per = n_envs * model.n_steps if hasattr(model, "n_steps") else None
    config = {name: value for name, value in settings.items() if isinstance(value, int | float | str)}
    return sdk.start(
        task=draw.case.world, algo=draw.case.algorithm, n_envs=n_envs, config=config, devices=["cpu"],
        updates=per and -(-steps // per),
    )  # fmt: skip


def _evaluation(draw: Draw, env: VecEnv, world: str, turns: int) -> EvalCallback:
    judge: VecEnv = DummyVecEnv([lambda: Monitor(build(world, Fault(), 0))])
    if isinstance(env, VecNormalize):
        judge = VecNormalize(judge, training=False, norm_reward=False)
    every = max(turns // draw.one("evaluations", (8, 16, 24)), 1)
    return EvalCallback(judge, n_eval_episodes=draw.one("eval_episodes", (3, 5)), eval_freq=every, verbose=0)


def _optimisers(draw: Draw, model: Any) -> None:
    """Accumulated gradients and the steps that a scaler of losses skips, where the kind has them."""
    kind = draw.case.kind
    if kind not in ("accumulation", "skipped-steps"):
        return
    every, chance = draw.one("accumulated", (2, 4)), draw.between("skipped", 0.01, 0.1)
    draws = np.random.default_rng(draw.seed)
    for optimiser in _all_optimisers(model):
        step, zero, count = optimiser.step, optimiser.zero_grad, [0]

        def stepped(*args: Any, step: Any = step, count: list[int] = count, **kwargs: Any) -> Any:
            count[0] += 1
            if kind == "skipped-steps":
                return None if draws.random() < chance else step(*args, **kwargs)
            return step(*args, **kwargs) if count[0] % every == 0 else None

        def zeroed(*args: Any, zero: Any = zero, count: list[int] = count, **kwargs: Any) -> None:
            if kind == "skipped-steps" or count[0] % every == 0:
                zero(*args, **kwargs)

        optimiser.step, optimiser.zero_grad = stepped, zeroed


def _all_optimisers(model: Any) -> list[Any]:
    owners = [model.policy, *(getattr(model, name, None) for name in ("actor", "critic"))]
    return list({id(one.optimizer): one.optimizer for one in owners if hasattr(one, "optimizer")}.values())


class Conductor(BaseCallback):
    """Turns the fault on when it is time, announces curricula, waits where the training waits."""

    def __init__(self, draw: Draw, fault: Fault, begins: float, steps: int, run: sdk.Run | None) -> None:
        super().__init__()
        self._draw, self._fault, self._begins, self._steps, self._run = draw, fault, begins, steps, run
        self._marks = [(number + 1) / 6 for number in range(5)]

    def _on_training_start(self) -> None:
        if self._begins <= 0:
            self._strike()

    def _on_rollout_start(self) -> None:
        done = self.num_timesteps / self._steps
        if not self._fault.is_on and self._begins <= done:
            self._strike()
        if self._run is not None and self._marks and done >= self._marks[0]:
            self._marks.pop(0)
            self._announce(self._run)

    def _on_step(self) -> bool:
        return time.process_time() - self._fault_start < MOST_CPU_S

    def _init_callback(self) -> None:
        self._fault_start = time.process_time()

    def _strike(self) -> None:
        self._fault.is_on = True
        strike = STRIKES.get(self._draw.case.kind)
        if strike is not None:
            strike(self.model, self._draw)

    def _announce(self, run: sdk.Run) -> None:
        kind, number = self._draw.case.kind, 5 - len(self._marks)
        if kind == "curriculum":
            self._fault.hardness = number / 5
            run.curriculum_changed(f"stage-{number}")
        elif kind == "checkpoints":
            with run.phase("checkpoint"):
                path = f"model-{number}.zip"
                self.model.save(path)
                time.sleep(self._draw.between("saving_s", 0.2, 3.0))
            run.checkpoint_saved(path)
        else:
            with run.phase("evaluation"):
                time.sleep(self._draw.between(f"pause_s{number}", 2.0, 20.0))


def _rate(times: Callable[[Draw], float]) -> Callable[[Any, Draw], None]:
    def strike(model: Any, draw: Draw) -> None:
        rate = float(model.lr_schedule(1.0)) * times(draw)
        model.lr_schedule = lambda _: rate

    return strike


def _constants(**values: Any) -> Callable[[Any, Draw], None]:
    def strike(model: Any, _: Draw) -> None:
        for name, value in values.items():
            setattr(
                model,
                name,
                (lambda _, value=value: value) if name in ("clip_range", "exploration_schedule") else value,
            )
            buffer = getattr(model, "rollout_buffer", None)
            if name == "gamma" and buffer is not None:
                buffer.gamma = value

    return strike


def _actor(model: Any) -> list[torch.nn.Module]:
    policy = model.policy
    if isinstance(model, OnPolicyAlgorithm):
        return [policy.mlp_extractor.policy_net, policy.action_net]
    return [model.q_net] if hasattr(model, "q_net") else [model.actor]


def _frozen_actor(model: Any, _: Draw) -> None:
    """The optimiser holds a copy of the policy's weights: they get gradients and never change."""
    held = {id(one) for module in _actor(model) for one in module.parameters()}
    if isinstance(model, OnPolicyAlgorithm) and hasattr(model.policy, "log_std"):
        held.add(id(model.policy.log_std))
    for optimiser in _all_optimisers(model):
        for group in optimiser.param_groups:
            group["params"] = [
                one.detach().clone().requires_grad_() if id(one) in held else one for one in group["params"]
            ]


def _frozen_critic(model: Any, _: Draw) -> None:
    if isinstance(model, OnPolicyAlgorithm):
        modules = [model.policy.value_net, model.policy.mlp_extractor.value_net]
        for one in (one for module in modules for one in module.parameters()):
            one.requires_grad_(False)
    else:
        model.critic.optimizer.step = lambda *_, **__: None


def _hidden(model: Any) -> list[torch.nn.Linear]:
    layers = [one for module in _actor(model) for one in module.modules() if isinstance(one, torch.nn.Linear)]
    return layers[:-1] or layers


@torch.no_grad()
def _dead_units(model: Any, _: Draw) -> None:
    for layer in _hidden(model):
        layer.bias -= 1e3


@torch.no_grad()
def _blown(model: Any, draw: Draw) -> None:
    for module in _actor(model):
        for weight in module.parameters():
            weight.mul_(draw.between("blown", 10, 100))


@torch.no_grad()
def _nan(model: Any, draw: Draw) -> None:
    one = next(iter(_actor(model)[0].parameters()))
    one[0] = float("nan")


def _unclipped(model: Any, draw: Draw) -> None:
    model.max_grad_norm = 1e12
    _rate(lambda _: draw.between("times", 20, 100))(model, draw)


def _stale_normaliser(model: Any, draw: Draw) -> None:
    env = model.get_vec_normalize_env()
    stale, width = RunningMeanStd(shape=env.obs_rms.mean.shape), np.sqrt(env.obs_rms.var + 1e-8)
    signs = np.where(np.arange(width.size) % 2, 1.0, -1.0).reshape(width.shape)
    stale.mean = env.obs_rms.mean + signs * width * draw.between("shift", 1, 8)
    stale.var = env.obs_rms.var * draw.one("scale", (0.01, 0.1, 100.0))
    env.obs_rms, env.training = stale, False


def _entropy_bonus(model: Any, draw: Draw) -> None:
    size = draw.between("ent_coef", 0.5, 10)
    if isinstance(model, SAC):
        model.ent_coef_optimizer, model.ent_coef_tensor = None, torch.tensor(10 * size)
    else:
        model.ent_coef = size


def _no_target(model: Any, _: Draw) -> None:
    model.tau = 0.0
    if hasattr(model, "target_update_interval"):
        model.target_update_interval = 10**9


def _noise(size: float) -> Callable[[Any, Draw], None]:
    def strike(model: Any, _: Draw) -> None:
        count = model.action_space.shape[0]
        one = NormalActionNoise(np.zeros(count), size * np.ones(count))
        model.action_noise = VectorizedActionNoise(one, model.n_envs) if size else None

    return strike


STRIKES: Final[dict[str, Callable[[Any, Draw], None]]] = {
    "rate-x10": _rate(lambda draw: draw.between("times", 8, 30)),
    "rate-x100": _rate(lambda draw: draw.between("times", 60, 300)),
    "rate-x1000": _rate(lambda draw: draw.between("times", 700, 3000)),
    "rate-0": _rate(lambda _: 0.0),
    "no-entropy": _constants(ent_coef=0.0),
    "entropy-bonus": _entropy_bonus,
    "clip-5": _constants(clip_range=5.0, target_kl=None, n_epochs=20),
    "epochs-40": _constants(n_epochs=40, target_kl=None),
    "raw-advantages": _constants(normalize_advantage=False),
    "no-value-loss": _constants(vf_coef=0.0),
    "discount-0": _constants(gamma=0.0),
    "unclipped": _unclipped,
    "frozen-actor": _frozen_actor,
    "frozen-critic": _frozen_critic,
    "dead-relu": _dead_units,
    "blown-weights": _blown,
    "nan-weights": _nan,
    "stale-normaliser": _stale_normaliser,
    "no-target-updates": _no_target,
    "epsilon-1": _constants(exploration_schedule=1.0),
    "no-noise": _noise(0.0),
    "noise-large": _noise(3.0),
}
