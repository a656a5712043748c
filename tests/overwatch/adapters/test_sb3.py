"""The callback, in real training: each number once, with the update it belongs to, under its own name."""

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from overwatch.adapters.sb3 import OverwatchCallback
from overwatch.adapters.sb3_logger import Numbers
from overwatch.adapters.spaces import most_entropy
from overwatch.catalog import KL
from overwatch.diagnose import Assessment, assess
from overwatch.events import (
    ActionTaken,
    EnvCrashed,
    EpisodeEnded,
    PhaseEnded,
    RunFinished,
    RunStarted,
    scalars,
)
from overwatch.sdk import Run
from overwatch.sdk.frames import Update
from tests import fakes
from tests.overwatch.adapters.receiving import Received, local_run
from tests.overwatch.sdk.sink import Sink

UPDATES = 3
STEPS = 64
ENTROPY, NATS = "overwatch.policy.entropy", "overwatch.policy.entropy_nats"
POLICY_LOSS, EVAL = "overwatch.policy.loss", "overwatch.policy.eval_return"


class Witness(KVWriter):
    """What SB3 itself dumps."""

    def __init__(self) -> None:
        self.dumps: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], *_: object) -> None:
        """Keep one dump."""
        self.dumps.append(dict(key_values))

    def close(self) -> None:
        """Nothing to close."""


def _ppo(env: VecEnv) -> PPO:
    return PPO("MlpPolicy", env, n_steps=STEPS, n_epochs=2, seed=3, device="cpu")


def _learn(env: VecEnv) -> tuple[Received, Witness, PPO]:
    """Three updates of three envs."""
    run, received = local_run()
    model, witness, callback = _ppo(env), Witness(), OverwatchCallback(run)
    model.set_logger(Logger(None, [witness]))
    model.learn(STEPS * 3 * UPDATES, callback=callback)
    assert callback.failures == 0
    assert callback._numbers.failures == 0
    assert model.logger.output_formats == [witness]
    return received, witness, model


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Nets this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def learned() -> tuple[Received, Witness, PPO]:
    """One short training, which many tests look at."""
    return _learn(make_vec_env("CartPole-v1", n_envs=3, seed=3))


def test_each_update_is_sent_once_with_its_own_numbers(learned: tuple[Received, Witness, PPO]) -> None:
    """SB3 dumps an update's numbers one rollout late and the last never; here they stand together."""
    received, witness, model = learned
    reported = [update.values for update in received.of(Update)]
    later = [*(dump for dump in witness.dumps[1:]), dict(model.logger.name_to_value)]

    assert len(reported) == UPDATES
    for values, now, after in zip(reported, witness.dumps, later, strict=True):
        assert values[KL.name] == float(after["train/approx_kl"])
        assert values[POLICY_LOSS] == float(after["train/policy_gradient_loss"])
        assert values["overwatch.policy.clip_fraction"] == float(after["train/clip_fraction"])
        assert values["overwatch.policy.explained_variance"] == float(after["train/explained_variance"])
        assert values["overwatch.policy.return"] == now["rollout/ep_rew_mean"]
        assert values["overwatch.policy.total_loss"] == after["train/loss"]
        assert values["overwatch.policy.update_time"] > 0
    assert len({values[KL.name] for values in reported}) == UPDATES


def test_entropy_is_a_share_of_the_uniform_choice(learned: tuple[Received, Witness, PPO]) -> None:
    """Of ln 2; beside it the nats themselves, which SB3 logs as a loss."""
    for update in learned[0].of(Update):
        nats = update.values[NATS]
        assert update.values[ENTROPY] == nats / math.log(2)
        assert 0.5 < update.values[ENTROPY] <= 1.0


def test_episodes_are_the_monitors(learned: tuple[Received, Witness, PPO]) -> None:
    """Env by env the returns and lengths that each Monitor wrote down, in order."""
    received, _, model = learned
    reported: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
    for event in received.of(EpisodeEnded):
        columns = (event.env_id, event.episode_return, event.length)
        for env_id, earned, steps in zip(*(column.array().tolist() for column in columns), strict=True):
            reported[env_id].append((earned, steps))
    env = model.get_env()
    assert env is not None
    returns, lengths = env.env_method("get_episode_rewards"), env.env_method("get_episode_lengths")

    assert sum(map(len, returns)) > 10
    for env_id in range(3):
        assert reported[env_id] == list(zip(returns[env_id], lengths[env_id], strict=True))


def test_every_step_counts_and_the_phases_alternate(learned: tuple[Received, Witness, PPO]) -> None:
    """The last record states how many steps each env took; each update collected, then learned."""
    received, _, _ = learned
    last = received.envs()[-1]

    assert last.index == STEPS * UPDATES
    assert last.keys["env_id"].array().tolist() == [0, 1, 2]
    assert last.values["overwatch.env.reward"].array().tolist() == [1.0, 1.0, 1.0]
    assert last.values["overwatch.env.step_time"].array().min() > 0
    assert last.values["lane"].words() == ["cpu"] * 3
    assert [phase.phase for phase in received.of(PhaseEnded)] == ["collect", "learn"] * UPDATES


def test_a_nan_that_sb3_means_is_undefined_and_no_finding() -> None:
    """Returns that do not vary and means over no episodes are NaN in SB3: shown as undefined."""
    run, received = local_run()
    model, logger = _ppo(make_vec_env("CartPole-v1")), Logger(None, [])
    model.set_logger(logger)
    numbers = Numbers(model, run)
    logger.output_formats.append(numbers)
    for update in range(1, 31):
        logger.record("train/explained_variance", np.float32(np.nan))
        logger.record("rollout/ep_rew_mean", np.nan)
        logger.record("train/approx_kl", 0.01)
        logger.record("train/n_updates", update)
        logger.dump(update)
        numbers.report()

    reported = [
        fakes.Measured(at=update.at, scope=fakes.Scope.POLICY, values=scalars(update.values))
        for update in received.of(Update)
    ]
    state = fakes.folded(reported)
    judged = assess(state, Assessment(), reported[-1].at + fakes.SECOND)

    assert (len(reported), state.updates) == (30, 30)
    assert state.policy["overwatch.policy.explained_variance"].non_finite == "undefined"
    assert state.policy["overwatch.policy.return"].non_finite == "undefined"
    assert state.policy[KL.name].value == 0.01
    assert judged.assessment.findings == {}


def test_rewards_are_those_of_the_env_not_of_the_normaliser() -> None:
    """Behind VecNormalize the learner sees scaled rewards; the board shows CartPole's 1.0."""
    received, _, _ = _learn(VecNormalize(make_vec_env("CartPole-v1", n_envs=3, seed=3)))

    for event in received.envs():
        assert event.values["overwatch.env.reward"].array().tolist() == [1.0, 1.0, 1.0]


def test_an_off_policy_algorithm_is_reported_at_its_dumps() -> None:
    """Of DQN: its loss, its return, no entropy; one update a dump, and what is left at the end."""
    run, received = local_run()
    witness, callback = Witness(), OverwatchCallback(run)
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=3), learning_starts=50, seed=3, device="cpu")
    model.set_logger(Logger(None, [witness]))
    model.learn(400, callback=callback)

    reported = [update.values for update in received.of(Update)]
    assert callback.failures == 0
    assert len(witness.dumps) <= len(reported) <= len(witness.dumps) + 1
    assert [v["overwatch.policy.return"] for v in reported if "overwatch.policy.return" in v] == [
        dump["rollout/ep_rew_mean"] for dump in witness.dumps
    ]
    assert "overwatch.policy.total_loss" in reported[-1]
    assert not any(ENTROPY in values or "overwatch.policy.update_time" in values for values in reported)
    assert received.of(PhaseEnded) == []


@pytest.mark.parametrize(
    ("space", "nats"),
    [
        (spaces.Discrete(2), math.log(2)),
        (spaces.MultiDiscrete([2, 3]), math.log(6)),
        (spaces.Discrete(1), None),
        (spaces.Box(-1, 1, (2,)), None),
    ],
)
def test_only_choices_have_a_most_entropy(space: gymnasium.Space[Any], nats: float | None) -> None:
    """A continuous policy's entropy has no maximum, and one action is no choice."""
    assert most_entropy(space) == (None if nats is None else pytest.approx(nats))


def test_a_run_of_its_own_starts_and_ends_with_learn(sink: Sink) -> None:
    """Named after env and algorithm, with its plan and its plain settings; `learn()` again is another run."""
    model, callback = _ppo(make_vec_env("CartPole-v1", n_envs=2)), OverwatchCallback()
    for _ in range(2):
        model.learn(STEPS * 2, callback=callback)
    # A run closes after two seconds; what a busy machine has not delivered by then comes after it.
    sink.wait(lambda s: len(s.events(RunFinished)) == 2)

    starts = sink.events(RunStarted)
    assert [(run.task, run.algo, run.n_envs, run.updates) for run in starts] == [
        ("CartPole-v1", "ppo", 2, 1)
    ] * 2
    assert starts[0].devices == ("cpu",)
    assert (starts[0].config["n_epochs"], starts[0].config["gamma"]) == ("2", "0.99")
    assert [event.outcome for event in sink.events(RunFinished)] == ["completed"] * 2
    assert len({record.origin.run_id for record in sink.records()}) == 2


class Foreign(DummyVecEnv):
    """A vector whose envs have no attributes that can be asked for."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """None of them."""
        if attr_name == "spec":
            raise NotImplementedError
        return super().get_attr(attr_name, indices)


@pytest.mark.filterwarnings("ignore::UserWarning")  # no Monitor
def test_a_vector_without_attributes_of_its_envs_is_watched_too(own: list[Received]) -> None:
    """Its run has no task, and all else."""
    callback = OverwatchCallback()
    _ppo(Foreign([functools.partial(gymnasium.make, "CartPole-v1")])).learn(STEPS, callback=callback)

    assert callback.failures == 0
    assert [event.outcome for event in own[0].of(RunFinished)] == ["completed"]
    assert own[0].envs()


class TrialPruned(Exception):  # noqa: N818 as Optuna calls it
    """Optuna's early end of a trial."""


class Raises(BaseCallback):
    """Another callback, which raises from one of SB3's hooks."""

    def __init__(self, hook: str, error: BaseException) -> None:
        super().__init__()
        self._error = error
        setattr(self, hook, self._raise)

    def _raise(self) -> bool:
        raise self._error

    def _on_step(self) -> bool:
        return True


LOOPS: dict[str, Callable[[], BaseAlgorithm]] = {
    "on-policy": lambda: _ppo(make_vec_env("CartPole-v1", n_envs=2)),
    "off-policy": lambda: DQN("MlpPolicy", make_vec_env("CartPole-v1"), learning_starts=8, device="cpu"),
}
ENDS = [
    (ValueError("NaN in the policy"), ("failed", "ValueError: NaN in the policy")),
    (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt")),
    (TrialPruned("step 1"), ("completed", "TrialPruned: step 1")),
]


def _caught(model: BaseAlgorithm, callbacks: list[BaseCallback], error: BaseException) -> None:
    """Learn as Optuna and RL Zoo do: the exception ends `learn()` and not the program."""
    with pytest.raises(type(error)) as caught:
        model.learn(STEPS * 4, callback=callbacks)
    assert caught.value is error


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[Received]:
    """What each run emits that a callback starts by itself."""
    started: list[Received] = []

    def start(**_: object) -> Run:
        run, received = local_run()
        started.append(received)
        return run

    monkeypatch.setattr("overwatch.adapters.sb3.sdk.start", start)
    return started


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("error", "ending"), ENDS)
def test_a_run_of_its_own_ends_with_a_learn_that_is_left_by_an_exception(
    own: list[Received], loop: str, error: BaseException, ending: tuple[str, str]
) -> None:
    """At once and with its reason, though SB3 calls no callback then; the model learns again as before."""
    model = LOOPS[loop]()
    kind, before = type(model), set(vars(model))
    _caught(model, [OverwatchCallback(), Raises("_on_step", error)], error)

    assert [(event.outcome, event.reason) for event in own[0].of(RunFinished)] == [ending]
    assert (type(model), set(vars(model)) >= before) == (kind, True)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("hook", ["_on_rollout_start", "_on_rollout_end", "_on_training_end"])
def test_an_exception_of_any_hook_ends_the_loop(own: list[Received], hook: str, *, first: bool) -> None:
    """Before our callback or after it: a run that has begun does not stay live, but its loop may be over."""
    error, ours = ValueError("bad"), OverwatchCallback()
    theirs = Raises(hook, error)
    _caught(LOOPS["on-policy"](), [theirs, ours] if first else [ours, theirs], error)

    assert len(own) == int(not (first and hook == "_on_rollout_start"))
    outcome = "completed" if hook == "_on_training_end" and not first else "failed"
    assert [event.outcome for received in own for event in received.of(RunFinished)] == [outcome] * len(own)
    assert ours.failures == 0


@pytest.mark.parametrize("where", ["train", "step"])
def test_a_loop_that_failed_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A given run goes on; the next `learn()` counts its updates once, and the model can be saved."""
    run, received = local_run()
    model, callback = _ppo(make_vec_env("CartPole-v1", n_envs=2)), OverwatchCallback(run)
    model.set_logger(Logger(None, []))
    owner, name = (PPO, "train") if where == "train" else (type(model.env), "step_wait")
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.learn(STEPS * 2, callback=callback)
    assert (received.of(RunFinished), received.of(Update), model.logger.output_formats) == ([], [], [])

    saved = CheckpointCallback(STEPS, str(tmp_path))
    model.learn(STEPS * 2 * UPDATES, callback=[callback, saved])
    assert len(received.of(Update)) == UPDATES
    assert callback.failures == 0
    again = PPO.load(next(tmp_path.iterdir()), env=make_vec_env("CartPole-v1", n_envs=2), device="cpu")
    again.learn(STEPS * 2)
    assert not set(vars(again)) & {"train", "collect_rollouts", "learn"}


def test_training_goes_on_when_telling_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A run that breaks at every call is counted and stated once; the model learns all the same."""
    callback = OverwatchCallback(object())  # type: ignore[arg-type]  # no run at all
    model = _ppo(make_vec_env("CartPole-v1"))
    model.learn(STEPS, callback=callback)

    assert model.num_timesteps == STEPS
    assert callback.failures > 1
    assert caplog.text.count("counted, not logged again") == 1


class Records(BaseCallback):
    """Logs numbers of its own, whatever holds them."""

    def _on_step(self) -> bool:
        self.logger.record("custom/tensor", torch.tensor([float(self.num_timesteps)]))
        self.logger.record("mine/array", np.array([[2.0]]))
        self.logger.record("mine/histogram", np.ones(3))
        self.logger.record("mine/text", "a word")
        return True


@pytest.mark.parametrize("loop", LOOPS)
def test_evaluations_and_numbers_of_ones_own_arrive(loop: str) -> None:
    """Those of any area; an evaluation that dumps in the middle makes no update of its own."""
    run, received = local_run()
    model, witness, callback = LOOPS[loop](), Witness(), OverwatchCallback(run)
    model.set_logger(Logger(None, [witness]))
    evaluates = EvalCallback(make_vec_env("CartPole-v1"), eval_freq=40, n_eval_episodes=1, verbose=0)
    model.learn(STEPS * 4, callback=[Records(), callback, evaluates])
    sent = [update.values for update in received.of(Update)]
    evaluated = [dump["eval/mean_reward"] for dump in witness.dumps if "eval/mean_reward" in dump]

    assert evaluated
    assert [values[EVAL] for values in sent if EVAL in values][-1] == evaluated[-1]
    assert any(values.get("overwatch.custom.eval/mean_ep_length", 0) > 0 for values in sent)
    assert sent[0]["overwatch.custom.mine/array"] == 2.0
    assert sent[0]["overwatch.custom.custom/tensor"] > 0
    assert not any("histogram" in name or "text" in name for values in sent for name in values)
    indices = [update.index for update in received.of(Update)]
    assert indices == sorted(indices)
    if loop == "on-policy":
        assert indices == [1, 2]


def test_an_evaluation_at_the_end_of_a_run_is_no_update() -> None:
    """A loop that is stopped in its second rollout has learnt once; what was evaluated then arrives."""
    run, received = local_run()
    model = LOOPS["on-policy"]()
    stops = StopTrainingOnRewardThreshold(reward_threshold=-1.0)
    evaluates = EvalCallback(
        make_vec_env("CartPole-v1"), callback_on_new_best=stops, eval_freq=STEPS + 5, verbose=0
    )
    model.learn(STEPS * 8, callback=[OverwatchCallback(run), evaluates])

    updates = received.of(Update)
    assert [update.index for update in updates] == [1, 1]
    assert updates[1].values[EVAL] > 0
    assert "overwatch.policy.update_time" not in updates[1].values


def test_choices_are_actions(learned: tuple[Received, Witness, PPO]) -> None:
    """The newest of each env, as words."""
    taken = learned[0].of(ActionTaken)
    assert taken
    assert all(set(one.op.words()) <= {"0", "1"} and len(one.env_id) == 3 for one in taken)


class Breaks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises at the fifth step."""

    steps = 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, or the error."""
        self.steps += 1
        if self.steps == 5:
            raise ValueError("no such joint")
        return self.env.step(action)


def _one_breaks(kind: type[VecEnv]) -> VecEnv:
    """Three envs, of which the one in the middle breaks."""
    env = functools.partial(gymnasium.make, "CartPole-v1")
    return kind([env, lambda: Breaks(env()), env])  # type: ignore[call-arg]


@pytest.mark.filterwarnings("ignore::UserWarning")  # no Monitor
@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_the_env_that_breaks_is_named(kind: type[VecEnv], own: list[Received]) -> None:
    """By its place, also where it lives in a process of its own, whose error SB3 does not hand on."""
    envs = _one_breaks(kind)
    error = ValueError if kind is DummyVecEnv else (EOFError, ConnectionResetError)
    with pytest.raises(error):
        _ppo(VecNormalize(envs)).learn(STEPS, callback=OverwatchCallback())

    (crash,) = own[0].of(EnvCrashed)
    assert (crash.env_id, crash.step) == (1, 4)
    assert crash.error.startswith(
        "ValueError: no such joint" if kind is DummyVecEnv else ("EOFE", "Connection")
    )
    assert [event.outcome for event in own[0].of(RunFinished)] == ["failed"]
    if isinstance(envs, SubprocVecEnv):
        for process in envs.processes:
            process.terminate()


def test_an_error_elsewhere_names_no_env(own: list[Received]) -> None:
    """Not that of the env whose step came last."""
    error = ValueError("bad")
    _caught(LOOPS["on-policy"](), [OverwatchCallback(), Raises("_on_step", error)], error)

    assert own[0].of(EnvCrashed) == []


class Evaluates(PPO):
    """Steps its envs as sb3-contrib's ARS does: in an evaluation, which calls back once for each env."""

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, *_: Any, **__: Any) -> bool:
        """One evaluation."""
        callback.on_rollout_start()
        evaluate_policy(self, env, 4, callback=functools.partial(self._trigger_callback, callback=callback))
        self.num_timesteps += STEPS
        callback.on_rollout_end()
        return False

    def _trigger_callback(self, _locals: Any, _globals: Any, callback: BaseCallback) -> None:
        callback.on_step()


def test_steps_of_an_evaluation_are_counted_once() -> None:
    """Rewards and episodes of the envs, though the callback has no names of the loop's."""
    run, received = local_run()
    callback = OverwatchCallback(run)
    model = Evaluates("MlpPolicy", make_vec_env("CartPole-v1", n_envs=2), n_steps=STEPS, device="cpu")
    model.learn(STEPS, callback=callback)

    ended = [row for event in received.of(EpisodeEnded) for row in event.length.array().tolist()]
    assert callback.failures == 0
    assert len(ended) >= 4
    assert received.envs()[-1].index < sum(ended)
    assert received.envs()[-1].values["overwatch.env.reward"].array().tolist() == [1.0, 1.0]
