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
    from gymnasium.spaces import Discrete
    from gymnasium.vector import VectorEnv, VectorWrapper
except ImportError as error:
    need = "overwatch.adapters.gymnasium needs Gymnasium 1.0 or later; pip install 'gymnasium>=1.0'"
    raise ImportError(need) from error

from overwatch import sdk
from overwatch.adapters.envs import Bordered, EnvReporter, Mask, kept_out
from overwatch.adapters.failures import culprit

P = ParamSpec("P")
T = TypeVar("T")
Result = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
Recorded = tuple[Mask, np.ndarray, np.ndarray]

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
        self._report = EnvReporter(self.run, env.num_envs, lane, choices=_choices(env))
        self._is_failing = False
        self._resets_next = _mode(env) == NEXT_STEP
        self._counted: Mask | None = None
        """Of the next step: which rows are transitions; `None` where all are."""
        self._turn = 0
        self._returns = np.zeros(env.num_envs)
        self._began = np.zeros(env.num_envs, dtype=np.int64)
        """The last turn that is no part of each env's episode."""

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
    def _forget(self, mask: Mask | None) -> None:
        rows = slice(None) if mask is None else mask
        self._returns[rows] = 0.0
        self._began[rows] = self._turn
        if self._counted is not None:
            self._counted[rows] = True

    @kept_out
    def _note(self, result: Result, actions: Any, seconds: float) -> None:
        _, rewards, terminations, truncations, infos = result
        counted, self._counted = self._counted, None
        self._turn += 1
        self._report.step(rewards, seconds, counted, actions)
        if counted is None:
            self._returns += rewards
        else:
            np.add(self._returns, rewards, out=self._returns, where=counted)
            self._began[~counted] = self._turn
        recorded = _recorded(infos) if infos else None
        if recorded is not None or np.count_nonzero(terminations) or np.count_nonzero(truncations):
            self._note_ends(np.logical_or(terminations, truncations), counted, recorded)

    def _note_ends(self, ends: Mask, counted: Mask | None, recorded: Recorded | None) -> None:
        """Some envs ended on this turn."""
        if recorded is None:
            rows = np.flatnonzero(ends if counted is None else ends & counted)
            returns, lengths = self._returns[rows], self._turn - self._began[rows]
        else:
            rows = np.flatnonzero(recorded[0])
            returns, lengths = (column[rows] for column in recorded[1:])
            # Gymnasium's recorder forgets running episodes when others are reset by mask: it lost a part.
            seen = self._turn - self._began[rows]
            lost = lengths < seen
            returns, lengths = np.where(lost, self._returns[rows], returns), np.where(lost, seen, lengths)
        self._report.episodes(rows, returns, lengths)
        self._returns[ends] = 0.0
        self._began[ends] = self._turn
        if self._resets_next:
            self._counted = ~ends


def _choices(env: VectorEnv[Any, Any, Any]) -> int:
    """How many actions there are, where each is a number from 0."""
    space = env.single_action_space
    return int(space.n) if isinstance(space, Discrete) and space.start == 0 else 0


def _mode(env: VectorEnv[Any, Any, Any]) -> str:
    """The autoreset mode's word; an env without one resets on the next step, as Gymnasium assumes."""
    mode = (env.metadata or {}).get("autoreset_mode", NEXT_STEP)
    return str(getattr(mode, "value", mode))


def _recorded(infos: Mapping[str, Any]) -> Recorded | None:
    """What RecordEpisodeStatistics wrote: which envs ended, returns and lengths (zero elsewhere)."""
    for found in (infos, infos.get("final_info")):
        if isinstance(found, Mapping) and "_episode" in found and isinstance(found.get("episode"), Mapping):
            episode = found["episode"]
            mask = np.asarray(found["_episode"], dtype=np.bool_)
            return mask, np.asarray(episode["r"]), np.asarray(episode["l"])
    return None
