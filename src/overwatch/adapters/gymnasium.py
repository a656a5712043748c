"""Gymnasium: a vector wrapper that reports what its envs earn, how long they take and how they end.

    from overwatch.adapters.gymnasium import OverwatchWrapper
    envs = OverwatchWrapper(envs)

Changes nothing that passes through it. Knows the three autoreset modes: the step on which NEXT_STEP resets
an env is no transition and counts nowhere; under SAME_STEP and DISABLED every step is one. Returns come from
`RecordEpisodeStatistics` where it is among the wrapped, else from the rewards seen here.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

try:
    from gymnasium.vector import VectorEnv, VectorWrapper
except ImportError as error:
    need = "overwatch.adapters.gymnasium needs Gymnasium 1.0 or later; pip install 'gymnasium>=1.0'"
    raise ImportError(need) from error

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.failures import culprit
from overwatch.adapters.spaces import choices
from overwatch.adapters.turns import Stated

P = ParamSpec("P")
T = TypeVar("T")
Result = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

NEXT_STEP = "NextStep"


class OverwatchWrapper(VectorWrapper, Bordered):  # generic since 1.4 only
    """Reports every step to `run`, or to a run of its own that ends with `close()`."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], run: sdk.Run | None = None, *, lane: str | None = None
    ) -> None:
        super().__init__(env)
        self._owns = run is None
        self.run = run or sdk.start(task=env.spec.id if env.spec else None, n_envs=env.num_envs)
        """The run that is reported to; also where a trainer sends its `update`s."""
        self._report = EnvReporter(
            self.run,
            env.num_envs,
            lane,
            choices=choices(env.single_action_space),
            resets_next=_mode(env) == NEXT_STEP,
        )
        self._is_failing = False

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all envs, or those of `options["reset_mask"]`."""
        mask = (options or {}).get("reset_mask")  # read first: the env may take it out
        result = self._watched(self.env.reset, seed=seed, options=options)
        self._forget(mask)
        return result

    def step(self, actions: Any) -> Result:
        """Step all envs."""
        began = time.perf_counter()
        result = self._watched(self.env.step, actions)
        self._note(result, actions, time.perf_counter() - began)
        return result

    def close(self, **kwargs: Any) -> None:
        """Close the envs, and the run if it is the wrapper's own."""
        super().close(**kwargs)
        self._end()

    def _watched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Have the run end as these envs did, unless they go on."""
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            self._is_failing = True
            self._note_error(error)
            raise
        if self._is_failing:
            self._is_failing = False
            self._note_error(None)
        return result

    @kept_out
    def _end(self) -> None:
        self._report.flush()
        if self._owns:
            self.run.close()

    @kept_out
    def _note_error(self, error: BaseException | None) -> None:
        if self._owns:
            self.run.note_error(error)
        env_id = culprit(error, self.env.unwrapped) if isinstance(error, Exception) else None
        if env_id is not None and isinstance(error, Exception):
            self._report.crashed(env_id, error)

    @kept_out
    def _forget(self, mask: Any) -> None:
        self._report.forget(mask)

    @kept_out
    def _note(self, result: Result, actions: Any, seconds: float) -> None:
        _, rewards, terminations, truncations, infos = result
        ends = np.logical_or(terminations, truncations)
        self._report.turn(rewards, seconds, ends, actions=actions, stated=_recorded(infos) if infos else None)


def _mode(env: VectorEnv[Any, Any, Any]) -> str:
    """The autoreset mode's word; an env without one resets on the next step, as Gymnasium assumes."""
    mode = (env.metadata or {}).get("autoreset_mode", NEXT_STEP)
    return str(getattr(mode, "value", mode))


def _recorded(infos: Mapping[str, Any]) -> Stated | None:
    """What RecordEpisodeStatistics wrote: which envs ended, returns and lengths.

    It forgets running episodes when others are reset by mask: then it lost a part.
    """
    for found in (infos, infos.get("final_info")):
        if isinstance(found, Mapping) and "_episode" in found and isinstance(found.get("episode"), Mapping):
            return found["_episode"], found["episode"]["r"], found["episode"]["l"]
    return None
