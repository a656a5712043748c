"""transformers' Trainer and TRL's trainers: a callback that reports their steps and what they log.

    from overwatch.adapters.transformers import OverwatchCallback
    trainer = GRPOTrainer(..., callbacks=[OverwatchCallback()])

Rules: an update is an optimiser step, with the trainer's number. Names mean the policy's rows only where a
trainer learns from rewards of its own answers; elsewhere entropy, KL and rewards are custom numbers. Rank 0
reports what is logged, each rank its time and phases. Trainer calls no hook when an exception ends it, so the
methods of its loop are watched while it trains. Must not know a model, nor what an answer is.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Final

from transformers import Trainer, TrainerCallback

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.loops import Phases, caller
from overwatch.adapters.methods import Around, watch
from overwatch.adapters.numbers import numbers
from overwatch.adapters.reward_functions import RewardFunctions
from overwatch.catalog import Library
from overwatch.catalog.presets import DEFAULT, preset_for

LOOP: Final = {
    "_run_epoch": None,
    "_finalize_training": None,
    "training_step": None,
    "get_batch_samples": "load",
    "_generate_and_score_completions": "rollout",
    "_evaluate": "evaluation",
    "_save_checkpoint": "checkpoint",
}
"""What the loop calls of a trainer, by any version and trainer, and the phase that each is."""


class OverwatchCallback(TrainerCallback, Bordered):  # type: ignore[misc]  # the library has no types
    """Reports each step to `run`, or to a run of its own that ends with `train()`."""

    def __init__(self, run: sdk.Run | None = None) -> None:
        self._given = run
        self._hooks = ExitStack()
        self._is_on = False

    @kept_out
    def on_train_begin(self, /, args: Any, state: Any, *_: object, **given: Any) -> None:
        """Training begins, or begins again with smaller batches."""
        self.on_train_end()
        trainer = caller(Trainer)
        algo = algorithm(type(trainer))
        self._library = Library.TRANSFORMERS if preset_for(algo) == DEFAULT else Library.TRL
        self._run = self._given or _started(args, state, getattr(given.get("model"), "config", None), algo)
        self._phases = Phases(self._run)
        self._turn, self._took = time.perf_counter(), deque[float](maxlen=_steps_of_answers(args, trainer))
        self._rewards = RewardFunctions(self._run)
        self._watch(trainer)
        self._is_on = True

    @kept_out
    def on_step_begin(self, /, *_: object, **__: object) -> None:
        """The batches of an optimiser step are there."""
        if self._is_on:
            self._phases.switch("update")

    @kept_out
    def on_step_end(self, /, _: object, state: Any, *__: object, **___: object) -> None:
        """An optimiser step was taken; what is logged of it follows."""
        if self._is_on:
            self._phases.switch(None)
            self._took.append(time.perf_counter() - self._turn)
            took = sum(self._took) / len(self._took)
            self._run.update(update=state.global_step, update_time=took, **self._rewards.times())

    @kept_out
    def on_log(self, /, _: object, state: Any, *__: object, logs: Any, **___: object) -> None:
        """What was logged since the last time; of several steps the mean."""
        if self._is_on and state.is_world_process_zero:
            found = numbers(logs, self._library)
            found.pop("update_time", None)  # each step has its own
            self._run.update(update=state.global_step, **found)

    @kept_out
    def on_save(self, /, args: Any, state: Any, *_: object, **__: object) -> None:
        """A checkpoint is on disk."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._is_on and args.should_save and path.exists():
            self._run.checkpoint_saved(path, update=state.global_step)

    @kept_out
    def on_train_end(self, /, *_: object, **__: object) -> None:
        """The loop is over; a run of its own ends by the exception that is being handled, if there is one."""
        if self._is_on:
            self._is_on = False
            self._phases.close()
            self._hooks.close()
            if self._given is None:
                self._run.close()

    def _watch(self, trainer: Trainer) -> None:
        """Look at a trainer's methods, and at its functions that pay."""
        self._hooks.callback(watch(trainer, {name: self._around(phase) for name, phase in LOOP.items()}))
        if isinstance(paying := vars(trainer).get("reward_funcs"), list):
            trainer.reward_funcs = self._rewards.timed(paying, trainer.reward_func_names)
            self._hooks.callback(setattr, trainer, "reward_funcs", paying)

    def _around(self, phase: str | None) -> Around:
        def around(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if phase == "load":
                self._turn = time.perf_counter()
            try:
                with nullcontext() if phase is None else self._phases.during(phase):
                    return method(*args, **kwargs)
            except BaseException:
                self.on_train_end()
                raise

        return around


def algorithm(kind: type) -> str:
    """The algorithm of a trainer's class: of the nearest one that its libraries have, without `Trainer`."""
    theirs = (one for one in kind.__mro__ if one.__module__.partition(".")[0] in ("trl", "transformers"))
    return next(theirs, kind).__name__.removesuffix("Trainer").removeprefix("Async").lower() or "transformers"


def _steps_of_answers(args: Any, trainer: Trainer) -> int:
    """Optimiser steps that learn from the same answers: the first of them takes longer."""
    batches: int = (getattr(args, "steps_per_generation", 1) or 1) * getattr(trainer, "num_iterations", 1)
    return max(1, batches // int(args.gradient_accumulation_steps))


def _started(args: Any, state: Any, model: Any, algo: str) -> sdk.Run:
    """A run named after model and algorithm, with the trainer's plain settings as its configuration."""
    settings = args.to_sanitized_dict()
    return sdk.start(
        task=getattr(model, "_name_or_path", "").rpartition("/")[2] or getattr(model, "model_type", None),
        algo=algo,
        devices=[str(args.device)],
        config={name: value for name, value in settings.items() if value not in ("None", "")},
        updates=state.max_steps,
        modes={"amp": "bf16" if args.bf16 else "fp16" if args.fp16 else None, "compile": args.torch_compile},
    )
