"""Tianshou, skrl, TorchRL, rsl_rl, PufferLib, without the libraries: on objects of their shapes."""

from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces

from overwatch.adapters import pufferlib, rsl_rl, skrl, torchrl
from overwatch.events import ActionTaken, EpisodeEnded
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.receiving import Received, local_run

ROW = "overwatch.policy."
CUSTOM = "overwatch.custom."


def _values(received: Received) -> list[dict[str, Any]]:
    return [dict(update.values) for update in received.of(Update)]


def _ended(received: Received) -> list[tuple[int, float, float]]:
    columns = [(one.env_id, one.episode_return, one.length) for one in received.of(EpisodeEnded)]
    return [
        row for group in columns for row in zip(*(column.array().tolist() for column in group), strict=True)
    ]


class RslWriter:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.written: dict[str, Any] = {}

    def add_scalar(self, tag: str, value: Any, _: int) -> None:
        """Write."""
        self.written[tag] = value


class RslLogger:
    """Writes losses, what the env states and a tag of its own, if it has a folder."""

    def __init__(self, *, has_folder: bool) -> None:
        self.rewbuffer, self.lenbuffer = deque([1.0, 3.0]), deque[float]()
        self._has_folder = has_folder
        self.writer: RslWriter | None = None

    def init_logging_writer(self) -> None:
        """Begin."""
        self.writer = RslWriter() if self._has_folder else None

    def log(self, *, it: int, loss_dict: dict[str, float], **_: Any) -> None:
        """Write an iteration."""
        if self.writer is not None:
            for name, value in loss_dict.items():
                self.writer.add_scalar(f"Loss/{name}", value, it)
            for name, value in EXTRAS.items():
                self.writer.add_scalar(name, torch.as_tensor(value).float().mean(), it)
            self.writer.add_scalar("Rnd/weight", 0.5, it)
            self.writer.add_scalar("Perf/total_fps", 1200, it)


EXTRAS: dict[str, Any] = {
    "Episode_Reward/track": torch.tensor(2.0), "Metrics/error": torch.tensor([1.0, 3.0]),
    "Curriculum/level": 4,
}  # fmt: skip
"""Of IsaacLab's `extras["log"]`."""


class RslRunner:
    """Two envs, one step an iteration."""

    device, current_learning_iteration = "cpu", 0

    def __init__(self, *, has_folder: bool) -> None:
        self.cfg = {"algorithm": {"class_name": "PPO"}}
        self.env, self.alg = SimpleNamespace(num_envs=2, step=self._step), SimpleNamespace(update=dict)
        self.logger = RslLogger(has_folder=has_folder)

    def _step(self, _: Any) -> tuple[Any, ...]:
        return None, torch.ones(2), torch.zeros(2), {"log": EXTRAS}

    def learn(self, num_learning_iterations: int) -> None:
        """Train."""
        self.logger.init_logging_writer()
        times = {"collect_time": 0.2, "learn_time": 0.3, "action_std": torch.tensor([1.0, 0.5])}
        for it in range(num_learning_iterations):
            self.env.step(None)
            self.alg.update()
            self.logger.log(it=it, loss_dict={"surrogate": 0.1, "entropy": 2.0}, learning_rate=1e-3, **times)


def test_an_iteration_of_rsl_rl_has_all_that_its_writer_gets() -> None:
    """What the library knows, what the env states and what no table has; nothing of the one before."""
    run, received = local_run(2)
    runner = RslRunner(has_folder=True)
    rsl_rl.watch(runner, run)
    runner.learn(2)

    assert runner.logger.writer is not None
    for values in _values(received):
        assert (values[f"{ROW}loss"], values[f"{ROW}entropy_nats"]) == (0.1, 2.0)
        sent = {name.removeprefix(CUSTOM) for name in values if name.startswith(CUSTOM)}
        assert sent == runner.logger.writer.written.keys() - {"Loss/surrogate", "Loss/entropy"}
        assert (values[f"{CUSTOM}Metrics/error"], values[f"{CUSTOM}Perf/total_fps"]) == (2.0, 1200.0)
    assert len(_values(received)) == 2


def test_without_a_folder_an_iteration_of_rsl_rl_has_what_it_would_write() -> None:
    """Losses, times, means of what the env stated; a mean of no episodes is none."""
    run, received = local_run(2)
    runner = RslRunner(has_folder=False)
    rsl_rl.watch(runner, run)
    runner.learn(1)

    (values,) = _values(received)
    assert (values[f"{ROW}return"], values[f"{ROW}action_std"]) == (2.0, 0.75)
    assert f"{ROW}episode_length" not in values
    assert [values[f"{CUSTOM}{name}"] for name in EXTRAS] == [2.0, 2.0, 4.0]


class SkrlEnv:
    """Two envs of a vector that resets an env on the step after its end."""

    num_envs = 2
    action_space = spaces.Discrete(4)
    metadata: ClassVar = {"autoreset_mode": SimpleNamespace(value="NextStep")}

    def __init__(self) -> None:
        self.turn = 0

    def step(self, _: torch.Tensor) -> tuple[Any, ...]:
        """Env 0 ends at its second step; its third resets it."""
        self.turn += 1
        ends = torch.tensor([[self.turn == 2], [False]])
        return None, torch.ones(2, 1), ends, torch.zeros(2, 1, dtype=torch.bool), {}


class SkrlAgent:
    """An agent with rollouts, which tracks what PPO tracks."""

    device = "cpu"
    action_space = SkrlEnv.action_space
    write_interval = 0
    cfg = SimpleNamespace(rollouts=4, entropy_loss_scale=0.01)
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.5}])

    def __init__(self) -> None:
        self.tracking_data = {
            "Loss / Entropy loss": [0.0, -0.01],
            "Policy / Standard deviation": [float("nan")],
            "Reward / Total reward (mean)": [7.0],
        }

    def update(self, *, timestep: int, timesteps: int) -> None:
        """Learn."""


class SkrlTrainer:
    """Four steps, then an update."""

    def __init__(self) -> None:
        self.env, self.agents, self.cfg = SkrlEnv(), SkrlAgent(), SimpleNamespace(timesteps=4)

    def train(self) -> None:
        """The loop."""
        for _ in range(4):
            self.env.step(torch.tensor([[1], [3]]))
        self.agents.update(timestep=3, timesteps=4)


def test_skrl_is_reported_update_by_update() -> None:
    """Entropy is its loss over minus the coefficient; a choice has no deviation; a reset is no transition."""
    run, received = local_run(2)
    trainer = SkrlTrainer()
    skrl.watch(trainer, run)

    trainer.train()

    (values,) = _values(received)
    assert values[f"{ROW}entropy_nats"] == 1.0
    assert np.isclose(values[f"{ROW}entropy"], 1 / np.log(4))
    assert values[f"{ROW}return"] == 7.0
    assert values[f"{ROW}learning_rate"] == 0.5
    assert values[f"{CUSTOM}Loss / Entropy loss"] == -0.01
    assert f"{ROW}action_std" not in values
    assert _ended(received) == [(0, 2.0, 2.0)]
    assert received.of(ActionTaken)[0].op.words() == ["1", "3"]


class Batch(dict[Any, Any]):
    """A batch of a collector: keys are paths."""

    device = None


class TorchrlTrainer:
    """Logs a batch as TorchRL's trainers do."""

    total_frames = 8
    optimizer = SimpleNamespace(param_groups=[{"lr": torch.tensor(0.25)}])
    collector = SimpleNamespace(env=None, frames_per_batch=4)

    def train(self) -> None:
        """Two batches of one env and four steps; an episode ends at the third step."""
        for _ in range(2):
            ends = torch.tensor([[False], [False], [True], [False]])
            actions = torch.nn.functional.one_hot(torch.tensor([0, 1, 0, 1]), 2)
            batch = Batch({("next", "reward"): torch.ones(4, 1), ("next", "done"): ends, "action": actions})
            self._pre_steps_log_hook(batch)
            self.optim_steps(batch)
            self._post_steps_log_hook(batch)

    def _pre_steps_log_hook(self, _: Any) -> None:
        self._log(log_pbar=True, r_training=1.0)

    def _post_steps_log_hook(self, _: Any) -> None:
        """No hooks."""

    def optim_steps(self, _: Any) -> None:
        """Learn."""
        self._log(
            loss_critic=torch.tensor(2.0), entropy=torch.tensor(0.5), explained_variance=torch.tensor(0.1)
        )

    def _log(self, **logged: Any) -> None:
        """To a logger."""


def test_torchrl_is_reported_batch_by_batch() -> None:
    """Returns are added up, across batches; a minibatch's number takes no row's name."""
    run, received = local_run(1)
    trainer = TorchrlTrainer()
    torchrl.watch(trainer, run)

    trainer.train()

    first, second = _values(received)
    assert (first[f"{ROW}return"], second[f"{ROW}return"]) == (3.0, 4.0)
    assert second[f"{ROW}episode_length"] == 4.0
    assert (first[f"{ROW}value_loss"], first[f"{ROW}entropy_nats"], first[f"{ROW}learning_rate"]) == (
        2.0,
        0.5,
        0.25,
    )
    assert first[f"{CUSTOM}r_training"] == 1.0
    assert f"{CUSTOM}loss/explained_variance" in first
    assert _ended(received) == [(0, 3.0, 3.0), (0, 4.0, 4.0)]
    assert [action.op.words() for action in received.of(ActionTaken)] == [["1"], ["1"]]


class TorchrlLogger:
    """A logger whose `log_metrics` logs one by one."""

    exp_name = "byhand"

    def __init__(self) -> None:
        self.written: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, step: int) -> None:
        """Write."""
        self.written.append((name, value, step))

    def log_metrics(self, metrics: dict[str, float], step: int) -> dict[str, float]:
        """Write all."""
        for name, value in metrics.items():
            self.log_scalar(name, value, step=step)
        return metrics

    def shutdown(self) -> None:
        """Close."""


def test_a_logger_of_torchrl_reports_one_update_a_step() -> None:
    """It writes as before; the last step is sent with the end."""
    run, received = local_run()
    logger = TorchrlLogger()
    torchrl.watch(logger, run)

    logger.log_metrics({"train/entropy": 0.5, "train/lr": 0.1}, step=1)
    logger.log_scalar("train/reward", 9.0, 1)
    logger.log_metrics({"train/lr": 0.2}, step=2)
    logger.shutdown()

    assert _values(received) == [
        {f"{ROW}entropy_nats": 0.5, f"{ROW}learning_rate": 0.1, f"{ROW}return": 9.0},
        {f"{ROW}learning_rate": 0.2},
    ]
    assert len(logger.written) == 4


class PufferTrainer:
    """Two agents, two turns an epoch, losses that are set after the log."""

    total_agents = 2
    config: ClassVar = {"total_timesteps": 8, "batch_size": 4}

    def __init__(self) -> None:
        self.vecenv = SimpleNamespace(
            single_action_space=spaces.Discrete(2), recv=self._recv, send=lambda actions: actions
        )
        self.losses: dict[str, float] = {}
        self.epoch = 0

    def _recv(self) -> tuple[Any, ...]:
        ends = np.array([False, True])
        return None, np.ones(2), ends, np.zeros(2, dtype=np.bool_), [], np.arange(2), None

    def evaluate(self) -> None:
        """Collect."""
        for _ in range(2):
            self.vecenv.recv()
            self.vecenv.send(np.array([0, 1]))

    def train(self) -> dict[str, float]:
        """Learn; the log has the losses of the epoch before."""
        self.epoch += 1
        logs = {f"losses/{name}": value for name, value in self.losses.items()}
        self.losses = {"entropy": float(self.epoch), "approx_kl": 0.01}
        return logs

    def close(self) -> str:
        """End."""
        return "path"


def test_pufferlib_is_reported_with_the_losses_of_the_same_update() -> None:
    """Its own logger gets them one report late."""
    run, received = local_run(2)
    trainer = PufferTrainer()
    pufferlib.watch(trainer, run)

    for _ in range(2):
        trainer.evaluate()
        trainer.train()

    assert trainer.close() == "path"
    assert [values[f"{ROW}entropy_nats"] for values in _values(received)] == [1.0, 2.0]
    assert [update.index for update in received.of(Update)] == [1, 2]
    assert _ended(received)[0] == (1, 1.0, 1.0)
    assert len(_ended(received)) == 4
