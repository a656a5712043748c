"""Functions that pay for a language model's answers: what each takes, and which one raised.

Rules: a function is called as before and what it returns or raises is untouched. A model that pays, and a
function that is awaited, is left as it is. Must not know a trainer, nor what a reward is worth.
"""

import functools
import inspect
import time
from collections.abc import Sequence
from typing import Any

from overwatch.adapters.border import Bordered, kept_out
from overwatch.sdk import Run


class RewardFunctions(Bordered):
    """The functions of one trainer, by its names for them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seconds: dict[str, float] = {}

    def timed(self, functions: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """The same functions, watched."""
        return list(map(self._timed, functions, names))

    def times(self) -> dict[str, float]:
        """Seconds of each since the last time, as custom numbers."""
        taken, self._seconds = self._seconds, {}
        return {f"reward_time/{name}": seconds for name, seconds in taken.items()}

    def _timed(self, pays: Any, name: str) -> Any:
        plain = getattr(pays, "func", pays)
        is_model = hasattr(pays, "parameters")
        if is_model or any(map(inspect.iscoroutinefunction, (plain, plain.__call__))):
            return pays

        @functools.wraps(plain, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return pays(*args, **kwargs)
            except Exception as error:
                self._note(name, error)
                raise
            finally:
                self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began

        return call

    @kept_out
    def _note(self, name: str, error: Exception) -> None:
        self._run.log(f"reward function {name}: {type(error).__name__}: {error}", severity="error")
