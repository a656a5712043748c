"""transformers' Trainer and TRL's: what the callback reports of them, and how a run ends.

Skipped where the libraries are not installed: they need an environment of their own, `examples/trl_grpo.txt`.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from overwatch.catalog import CUSTOM_PREFIX
from overwatch.events import CheckpointSaved, LogLine, PhaseEnded, RunFinished
from overwatch.sdk import Run
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.receiving import Received, local_run

WHY = "needs an environment with what examples/trl_grpo.txt lists"
transformers, trl = (pytest.importorskip(name, reason=WHY) for name in ("transformers", "trl"))

from overwatch.adapters.transformers import LOOP, OverwatchCallback, algorithm  # noqa: E402 it imports the library

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 4
EXAMPLES = Path(__file__).parents[3] / "examples"
RETURN, KL, ENTROPY, UPDATE_TIME = (
    f"overwatch.policy.{name}" for name in ("return", "kl_reference", "entropy_nats", "update_time")
)


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _grpo(
    folder: Path,
    callback: object,
    pays: Callable[..., Any] | None = None,
    kind: str = "GRPO",
    **settings: Any,
) -> Any:
    """The example's model and prompts, for a few steps: two that learn from the same answers."""
    example = _example("trl_grpo")
    words = example.tokenizer()
    size = transformers.GPT2Config(
        vocab_size=len(words), n_positions=32, n_embd=8, n_layer=1, n_head=1, pad_token_id=0, eos_token_id=1
    )
    transformers.GPT2LMHeadModel(size).save_pretrained(folder / "start")
    prompts = example.Dataset.from_list([{"prompt": letter} for letter in "ab"] * 32)
    plain = {
        "output_dir": str(folder), "max_steps": STEPS, "logging_steps": 1, "per_device_train_batch_size": 8,
        "num_generations": 4, "num_iterations": 2, "max_completion_length": 4, "use_cpu": True, "bf16": False,
        "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "beta": 0.04,
    }  # fmt: skip
    return getattr(trl, f"{kind}Trainer")(
        model=str(folder / "start"), processing_class=words, reward_funcs=[pays or example.repeats],
        train_dataset=prompts, eval_dataset=prompts.select(range(4)),
        args=getattr(trl, f"{kind}Config")(**plain | settings), callbacks=[callback] if callback else [],
    )  # fmt: skip


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Received]]:
    """What each run is started with and emits that a callback starts by itself."""
    started: list[tuple[dict[str, Any], Received]] = []

    def start(**given: Any) -> Run:
        run, received = local_run()
        started.append((given, received))
        return run

    monkeypatch.setattr("overwatch.adapters.transformers.sdk.start", start)
    return started


def _merged(received: Received) -> dict[int, dict[str, float]]:
    """The numbers of each update; one call or several."""
    found: dict[int, dict[str, float]] = {}
    for update in received.of(Update):
        found.setdefault(update.index, {}).update(update.values)
    return found


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_a_trainer_of_rewards_fills_the_rows_of_a_policy(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]], kind: str
) -> None:
    """Each step is an update with its number, what it logged, and the time of each reward function."""
    callback = OverwatchCallback()
    trainer = _grpo(tmp_path, callback, kind=kind)
    trainer.train()

    ((given, received),) = own
    assert (given["algo"], given["updates"], given["task"]) == (kind.lower(), STEPS, "start")
    assert given["config"]["max_grad_norm"] == 1.0
    updates = _merged(received)
    assert list(updates) == [1, 2, 3, 4]
    logged = [one for one in trainer.state.log_history if "loss" in one]
    for (_, values), theirs in zip(updates.items(), logged, strict=True):
        assert values[ENTROPY] == theirs["entropy"]
        assert values[UPDATE_TIME] > 0
        assert values.get(RETURN) == theirs.get("reward")
        assert values.get(KL) == theirs.get("kl")
    assert f"{CUSTOM_PREFIX}reward_time/repeats" in updates[1]
    assert [event.outcome for event in received.of(RunFinished)] == ["completed"]
    assert {event.phase for event in received.of(PhaseEnded)} == {"load", "update", "rollout"}
    assert callback.failures == 0


def test_a_trainer_of_texts_fills_no_row_that_is_of_a_policy(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]]
) -> None:
    """Its entropy is of the text's tokens; loss, gradient and learning rate are what they are anywhere."""
    example = _example("trl_sft")
    example.OverwatchCallback = OverwatchCallback
    options = type("Options", (), {"dpo": False, "steps": STEPS, "learning_rate": 1e-3})
    example.trainer(options, str(tmp_path)).train()

    ((given, received),) = own
    assert given["algo"] == "sft"
    values = _merged(received)[STEPS]
    assert f"{CUSTOM_PREFIX}entropy" in values
    assert {name for name in values if not name.startswith(CUSTOM_PREFIX)} == {
        "overwatch.policy.total_loss", "overwatch.policy.grad_norm", "overwatch.policy.learning_rate",
        UPDATE_TIME,
    }  # fmt: skip


def test_times_of_phases_do_not_count_twice(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]]
) -> None:
    """Answers are generated within a training step, and within an evaluation."""
    _grpo(
        tmp_path, OverwatchCallback(), eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4
    ).train()

    ((_, received),) = own
    ended = [event.phase for event in received.of(PhaseEnded)]
    assert ended.count("rollout") == STEPS // 2
    assert ended.count("evaluation") == 2
    assert f"{CUSTOM_PREFIX}eval_reward" in _merged(received)[2]


def test_a_checkpoint_is_a_fact(tmp_path: Path, own: list[tuple[dict[str, Any], Received]]) -> None:
    """With its folder and its update."""
    _grpo(tmp_path, OverwatchCallback(), save_strategy="steps", save_steps=2).train()

    saved = own[0][1].of(CheckpointSaved)
    assert [(Path(event.path).name, event.update) for event in saved] == [
        ("checkpoint-2", 2),
        ("checkpoint-4", 4),
    ]


class Raises(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # the library has no types
    """Another callback, which raises from a hook."""

    def __init__(self, hook: str, error: BaseException) -> None:
        self._error = error
        setattr(self, hook, self._raise)

    def _raise(self, *_: object, **__: object) -> None:
        raise self._error


@pytest.mark.parametrize("hook", ["on_step_begin", "on_step_end", "on_log", "on_epoch_end"])
@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ValueError("bad"), ("failed", "ValueError: bad")),
        (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt")),
    ],
)
def test_a_run_ends_with_a_train_that_is_left_by_an_exception(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]], hook: str, error: BaseException, ending: Any
) -> None:
    """At once and with its reason, though the trainer calls no hook then; it is as it was."""
    callback = OverwatchCallback()
    trainer = _grpo(tmp_path, callback)
    trainer.add_callback(Raises(hook, error))
    before = dict(vars(trainer))
    with pytest.raises(type(error)) as caught:
        trainer.train()

    assert caught.value is error
    assert [(event.outcome, event.reason) for event in own[0][1].of(RunFinished)] == [ending]
    assert not LOOP.keys() & vars(trainer).keys()
    assert trainer.reward_funcs is before["reward_funcs"]
    assert callback.failures == 0


def test_a_reward_function_that_raises_is_named(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]]
) -> None:
    """In the feed, and the run's reason is its exception."""

    def divides(**_: object) -> list[float]:
        return [1 / 0]

    with pytest.raises(ZeroDivisionError):
        _grpo(tmp_path, OverwatchCallback(), pays=divides).train()

    received = own[0][1]
    assert [event.outcome for event in received.of(RunFinished)] == ["failed"]
    (line,) = received.of(LogLine)
    assert line.message == "reward function divides: ZeroDivisionError: division by zero"


def test_a_given_run_goes_on_and_each_train_has_its_own_else(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]]
) -> None:
    """A second `train()` is a second run; a callback may be added late."""
    run, received = local_run()
    trainer = _grpo(tmp_path, None)
    trainer.add_callback(OverwatchCallback(run))
    trainer.train()
    assert list(_merged(received)) == [1, 2, 3, 4]
    assert not received.of(RunFinished)

    trainer.pop_callback(OverwatchCallback)
    trainer.add_callback(OverwatchCallback)
    trainer.train()
    trainer.train()
    assert [list(_merged(one)) for _, one in own] == [[1, 2, 3, 4]] * 2


def test_a_method_that_the_user_replaced_is_theirs_again(
    tmp_path: Path, own: list[tuple[dict[str, Any], Received]]
) -> None:
    """It is called all the time."""
    trainer = _grpo(tmp_path, OverwatchCallback())
    theirs, calls = trainer.training_step, []

    def step(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return theirs(*args, **kwargs)

    trainer.training_step = step
    trainer.train()
    assert len(own) == 1
    assert len(calls) == STEPS
    assert trainer.training_step is step


class Second(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # the library has no types
    """Makes the process that of another rank, as the trainer's state has it."""

    def on_train_begin(self, _: object, state: Any, *__: object, **___: object) -> None:
        """Training begins."""
        state.is_world_process_zero = False


def test_only_the_first_rank_reports_what_is_logged(tmp_path: Path) -> None:
    """The others have the same numbers; their own are their time and their phases."""
    run, received = local_run()
    trainer = _grpo(tmp_path, OverwatchCallback(run))
    trainer.add_callback(Second)
    trainer.train()

    assert {name for values in _merged(received).values() for name in values} == {
        UPDATE_TIME, f"{CUSTOM_PREFIX}reward_time/repeats",
    }  # fmt: skip
    assert {event.phase for event in received.of(PhaseEnded)} == {"load", "update", "rollout"}


def test_training_goes_on_when_reporting_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run that breaks at every call is counted and logged once; the model learns all the same."""
    callback = OverwatchCallback(object())  # type: ignore[arg-type]  # no run at all
    trainer = _grpo(tmp_path, callback)
    trainer.train()

    assert trainer.state.global_step == STEPS
    assert callback.failures > 1
    assert caplog.text.count("OverwatchCallback.") == 1


@pytest.mark.parametrize(
    ("kind", "algo"),
    [("GRPOTrainer", "grpo"), ("RLOOTrainer", "rloo"), ("DPOTrainer", "dpo"), ("SFTTrainer", "sft")],
)
def test_the_algorithm_is_that_of_the_nearest_class_of_the_library(kind: str, algo: str) -> None:
    """A class of the user's own is of its parent's algorithm; plain Trainer has none."""
    theirs = getattr(trl, kind)
    assert algorithm(type("Mine", (theirs,), {"__module__": "__main__"})) == algorithm(theirs) == algo
    assert algorithm(transformers.Trainer) == "transformers"
