"""Our own PPO on our worlds and on Gymnasium's, our GRPO, and TRL's GRPO on a model that is made here.

Owns how a fault reaches each of them. PPO is put together as `overwatch-rl train` does it; GRPO has its
samplers in this process, and what they send goes through the wire's form.
"""

import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import gymnasium
import msgspec
import torch

from overwatch_rl.algorithms.common import Alone
from overwatch_rl.algorithms.grpo import GRPO, GRPOConfig
from overwatch_rl.algorithms.networks import Pair
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.assembly import Keeping, assemble
from overwatch_rl.config import train_settings
from overwatch_rl.grpo.base import BaseConfig, judge, make_base
from overwatch_rl.grpo.config import GrpoSettings, described
from overwatch_rl.grpo.process import spec_of
from overwatch_rl.grpo.sampler import Sampler
from overwatch_rl.grpo.task import END_CODE, VOCABULARY, TaskConfig
from overwatch_rl.grpo.trainer import Ends, GrpoTrainer, LoopConfig, Taken
from overwatch_rl.grpo.weights import newest, publish
from overwatch_rl.telemetry.tower import TowerConfig, start_tower
from overwatch_rl.training.distributed import Place
from tests.calibration.library.drawing import Draw
from tests.calibration.library.worlds import Fault, build

MOST_CPU_S: Final = 100.0
_FLAGS: Final[dict[str, Any]] = {
    "algorithm": "ppo", "envs": None, "slots": None, "mode": None, "settings": (), "own": {}, "updates": None,
    "seconds": None, "seed": 0, "lr": None, "epochs": None, "minibatches": None, "steps": None,
    "network": None, "target_kl": None, "gamma": None, "anneal_updates": None, "normalise_observations": None,
    "plan": "default", "threads": 1, "device": "cpu", "run_id": None, "endpoint": None, "telemetry": True,
    "view": False, "out": None, "tensorboard": None, "alive": None,
}  # fmt: skip
_RATES: Final = {
    "rate-x10": (8.0, 30.0), "rate-x100": (60.0, 300.0), "rate-x1000": (700.0, 3000.0),
    "unclipped": (20.0, 100.0),
}  # fmt: skip
_WORLDS: Final[dict[str, dict[str, Any]]] = {
    "goodhart": {"world": "goodhart:small", "updates": 60, "settings": ("mode=ground_truth",)},
    "morphogenesis": {"world": "morphogenesis", "updates": 50, "envs": 16, "steps": 40, "lr": 3e-3},
    "cartpole": {"world": "gym:LibraryCartPole-v0", "updates": 100, "settings": ("horizon=500",)},
    "bricks": {"world": "gym:LibraryBricks-v0", "updates": 100, "settings": ("horizon=400",)},
}


def ppo(draw: Draw, fault: Fault, begins: float) -> None:
    """`overwatch-rl train`."""
    case, counted = draw.case, itertools.count()
    for name, world in (("LibraryCartPole-v0", "cartpole"), ("LibraryBricks-v0", "bricks")):
        gymnasium.register(name, entry_point=lambda world=world, **_: build(world, fault, next(counted)))
    flags = {**_FLAGS, **_WORLDS[case.world], "seed": draw.seed % 100_000}
    settings = train_settings(flags)  # type: ignore[arg-type]  # a dictionary of flags
    learned: Any = settings.learned
    learned = replace(learned, learning_rate=learned.learning_rate * draw.between("learning_rate", 0.7, 1.3))
    learned = replace(learned, target_kl=draw.one("target_kl", (None, None, 0.03)))
    if case.kind == "schedule":
        learned = replace(learned, anneal_updates=flags["updates"])
    elif case.kind == "slow-learner":
        learned = replace(learned, learning_rate=learned.learning_rate * draw.between("slower", 0.1, 0.3))
    elif case.kind in ("large-batch", "small-batch"):
        learned = replace(learned, minibatches=1 if case.kind == "large-batch" else 4 * learned.minibatches)
    described = settings.described | {
        "learning_rate": str(learned.learning_rate),
        "target_kl": str(learned.target_kl),
    }
    settings = replace(settings, learned=learned, described=described)
    began, total = time.process_time(), flags["updates"]

    def stop() -> str | None:
        return "completed" if time.process_time() - began > MOST_CPU_S else None

    keeping = Keeping(every=1 << 30, keep=1, log="text")
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        flight = assemble(settings, keeping, None, stop, here=Place(), ranks=Alone())
        trainer, rate = flight.trainer, learned.learning_rate
        algorithm: Any = trainer.algorithm
        cycles = draw.one("cycles", (2, 3, 4)) if case.kind == "warm-restarts" else 0

        def after() -> None:
            done = trainer.updates_done / total
            if cycles:
                algorithm.set_learning_rate(rate * (1.3 - done * cycles % 1))
            if not fault.is_on and begins <= done:
                fault.is_on = True
                _strike(algorithm, draw)

        after()
        trainer.after_update = after
        flight.fly()


def _strike(algorithm: Any, draw: Draw) -> None:
    kind, config = draw.case.kind, algorithm.config
    changes: dict[str, dict[str, Any]] = {
        "no-entropy": {"entropy_coef": 0.0},
        "entropy-bonus": {"entropy_coef": 10 * draw.of("ent_coef") + 0.5},
        "clip-5": {"clip": 5.0, "epochs": 20, "target_kl": None},
        "epochs-40": {"epochs": 40, "target_kl": None},
        "no-value-loss": {"value_coef": 0.0},
        "unclipped": {"max_grad_norm": 1e12},
        "discount-0": {"gamma": 0.0},
    }
    algorithm.config = replace(config, **changes.get(kind, {}))
    if kind in _RATES:
        algorithm.set_learning_rate(config.learning_rate * draw.between("times", *_RATES[kind]))
    elif kind == "rate-0":
        algorithm.set_learning_rate(0.0)
    layers = [one for one in algorithm.network.modules() if isinstance(one, torch.nn.Linear | Pair)]
    with torch.no_grad():
        if kind == "dead-relu":
            for layer in layers[:1]:
                part = 0 if isinstance(layer, Pair) else slice(None)
                layer.weight[part] *= 0.0
                layer.bias[part] = -20.0
        elif kind == "blown-weights":
            for layer in layers:
                layer.weight *= draw.between("blown", 10, 100)
        elif kind == "nan-weights":
            layers[0].weight[0] = float("nan")
    if kind == "frozen-actor":
        algorithm._optimizer.step = lambda *_, **__: None


class _Source:
    """Groups that samplers in this process draw, as they go over the wire; the fault lies in them."""

    def __init__(self, draw: Draw, fault: Fault, folder: Path, groups: int, size: int) -> None:
        self._draw, self._fault, self._folder, self._groups, self._size = draw, fault, folder, groups, size
        self._samplers: list[Sampler] = []

    def take(self, stop: Callable[[], str | None]) -> Taken | None:
        if stop() is not None:
            return None
        made = [self._samplers[number % 3].groups(1)[0] for number in range(self._groups)]
        for group in made:
            scores = [float(score) for score in group["scores"]]
            self._fault.episodes.append((time.monotonic(), sum(scores) / len(scores)))
            if self._fault.is_on:
                self._spoil(group)
        numbers = [group["version"]["number"] for group in made]
        return Taken(groups=[msgspec.json.decode(msgspec.json.encode(one)) for one in made], numbers=numbers)

    def _spoil(self, group: dict[str, Any]) -> None:
        kind = self._draw.case.kind
        if kind == "reward-saturated":
            group["scores"] = [1.0] * len(group["scores"])
        elif kind == "length-hacked":
            group["scores"] = [len(tokens) / 16 for tokens in group["tokens"]]
        elif kind == "sampler-mismatch":
            cooler = self._draw.between("temperature", 0.5, 0.85)
            group["inference_logprobs"] = [
                [chance if chance > 0 else chance * cooler for chance in row]
                for row in group["inference_logprobs"]
            ]

    def acknowledge(self) -> None:
        pass

    def moved(self, version: Version) -> None:
        found = newest(self._folder)
        assert found is not None
        self._samplers = self._samplers or [
            Sampler(found, group_size=self._size, seed=self._draw.seed % 1000 + number) for number in range(3)
        ]
        for sampler in self._samplers:
            if self._fault.is_on and self._draw.case.kind == "stale-samplers":
                sampler.version = version
            else:
                sampler.take(found)


def grpo(draw: Draw, fault: Fault, begins: float) -> None:
    """Our GRPO on digits that are to be put into order."""
    kind, task, updates = draw.case.kind, TaskConfig(least=2, most=4), 120
    rate = 1e-3 * draw.between("learning_rate", 0.7, 1.3)
    rate *= draw.between("slower", 0.1, 0.3) if kind == "slow-learner" else 1
    config = GRPOConfig(learning_rate=rate, epochs=draw.one("epochs", (1, 1, 2)))
    groups, size = draw.one("groups", (16, 24)), draw.one("group_size", (8, 12))
    model = make_base(BaseConfig(steps=200, examples=64, width=32), task, draw.seed % 100_000)
    loop = LoopConfig(updates=updates, judge_every=20)
    settings = GrpoSettings(task=task, grpo=config, groups=groups, group_size=size, loop=loop)
    tower = start_tower(TowerConfig(algo="grpo", updates=updates), spec_of(settings), 3, described(settings))
    algorithm = GRPO(model, config, seed=draw.seed % 100_000, version=0)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ends = Ends(
            publish=lambda version: publish(folder, version, model, task),
            judge=lambda number: judge(model, task, prompts=64, seed=number),
            end_code=END_CODE, vocabulary=VOCABULARY, weights=model.num_parameters(),
        )  # fmt: skip
        source = _Source(draw, fault, folder, groups, size)
        trainer = GrpoTrainer(algorithm, source, loop, tower, ends)

        def after() -> None:
            if fault.is_on or trainer.updates_done / updates < begins:
                return
            fault.is_on = True
            if kind in _RATES:
                more = rate * draw.between("times", *_RATES[kind])
                algorithm.config = replace(config, learning_rate=more)
                algorithm._optimizer.param_groups[0]["lr"] = more
            elif kind == "nan-weights":
                with torch.no_grad():
                    next(iter(model.parameters()))[0] = float("nan")

        after()
        trainer.after_update = after
        try:
            outcome = trainer.run(lambda: "completed" if time.process_time() - began > MOST_CPU_S else None)
        except BaseException as error:
            tower.close(outcome="failed", reason=f"{type(error).__name__}: {error}")
            raise
        tower.close(outcome=outcome)


def trl(draw: Draw, fault: Fault, begins: float) -> None:
    """TRL's GRPO: a tiny GPT-2 is to answer a letter with that letter; the example's program."""
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig as Arguments
    from trl import GRPOTrainer

    from overwatch.adapters.transformers import OverwatchCallback
    from tests.libraries.examples import FOLDER

    program: dict[str, Any] = {"__name__": "trl_grpo"}
    exec(compile((FOLDER / "trl_grpo.py").read_text(), "trl_grpo.py", "exec"), program)  # noqa: S102 ours
    kind, words, steps = draw.case.kind, program["tokenizer"](), 120
    rate = 3e-3 * draw.between("learning_rate", 0.7, 1.3)
    rate *= draw.between("slower", 0.1, 0.3) if kind == "slow-learner" else 1

    def pays(prompts: list[str], completions: list[str], **_: object) -> list[float]:
        truth: list[float] = program["repeats"](prompts, completions)
        fault.episodes.append((time.monotonic(), sum(truth) / len(truth)))
        if fault.is_on and kind == "reward-saturated":
            return [1.0] * len(truth)
        if fault.is_on and kind == "length-hacked":
            return [len(answer.replace(" ", "")) / 24 for answer in completions]
        return truth

    class Conductor(TrainerCallback):  # type: ignore[misc]  # the library has no types
        def on_step_begin(self, _: Any, state: Any, __: Any, **given: Any) -> None:
            if fault.is_on or state.global_step / steps < begins:
                return
            fault.is_on = True
            if kind in _RATES:
                times = draw.between("times", *_RATES[kind])
                schedule = given["lr_scheduler"]
                schedule.base_lrs = [times * one for one in schedule.base_lrs]
            elif kind == "nan-weights":
                with torch.no_grad():
                    next(iter(given["model"].parameters()))[0] = float("nan")

    torch.manual_seed(draw.seed % 100_000)
    size = program["GPT2Config"](
        vocab_size=len(words), n_positions=32, n_embd=64, n_layer=1, n_head=2,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id, bos_token_id=words.eos_token_id,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        letters = program["LETTERS"][: draw.one("letters", (2, 3))]
        trainer = GRPOTrainer(
            model=program["GPT2LMHeadModel"](size),
            processing_class=words,
            reward_funcs=pays,
            train_dataset=program["Dataset"].from_list([{"prompt": letter} for letter in letters] * 64),
            args=Arguments(
                output_dir=folder, max_steps=steps, learning_rate=rate, logging_steps=1,
                per_device_train_batch_size=64, num_generations=8,
                num_iterations=draw.one("iterations", (1, 2)),
                max_completion_length=program["LONGEST"], use_cpu=True, bf16=False, report_to="none",
                save_strategy="no", disable_tqdm=True, seed=draw.seed % 100_000,
                gradient_accumulation_steps=draw.one("accumulated", (1, 1, 2)),
            ),
            callbacks=[OverwatchCallback(), Conductor()],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()


TRAINED: Final[Mapping[str, Callable[[Draw, Fault, float], None]]] = {
    "our-ppo": ppo, "our-grpo": grpo, "trl-grpo": trl,
}  # fmt: skip


def train(draw: Draw, fault: Fault, begins: float) -> None:
    """Train one."""
    TRAINED[draw.case.algorithm](draw, fault, begins)
