"""Gymnasium: a vector wrapper that reports what its envs earn, how long they take and how they end.

    from overwatch.adapters.gymnasium import OverwatchWrapper
    envs = OverwatchWrapper(envs)

Changes nothing that passes through it. Knows the three autoreset modes: the step on which NEXT_STEP resets
an env is no transition and counts nowhere; under SAME_STEP and DISABLED every step is one. Returns come from
`RecordEpisodeStatistics` where it is among the wrapped, else from the rewards seen here.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from overwatch import sdk
from overwatch.adapters.envs import Bordered, EnvReporter, Mask, Rewards, kept_out

Obs = TypeVar("Obs")
Act = TypeVar("Act")
Infos = dict[str, Any]
Turn = tuple[Rewards, Mask, Infos]
"""Rewards and ends of a step, shape (n,), and its infos."""

NEXT_STEP = "NextStep"


class OverwatchWrapper(VectorWrapper[Obs, Act, Obs, Act, np.ndarray], Bordered):
    """Reports every step to `run`, or to a run of its own that ends with `close()`."""

    def __init__(
        self, env: VectorEnv[Obs, Act, np.ndarray], run: sdk.Run | None = None, *, lane: str | None = None
    ) -> None:
        super().__init__(env)
        self._owns = run is None
        self.run = run or sdk.start(task=env.spec.id if env.spec else None, n_envs=env.num_envs)
        """The run that is reported to; also where a trainer sends its `update`s."""
        self._report = EnvReporter(self.run, env.num_envs, lane)
        self._is_failing = False
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, dtype=np.int64)
        self._resets_next = np.zeros(env.num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Reset all envs, or those of `options["reset_mask"]`."""
        mask = (options or {}).get("reset_mask")  # read first: the env may take it out
        with self._noted():
            result = super().reset(seed=seed, options=options)
        self._forget(mask)
        return result

    def step(self, actions: Act) -> tuple[Obs, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all envs."""
        began = time.perf_counter()
        with self._noted():
            result = super().step(actions)
        _, rewards, terminations, truncations, infos = result
        self._note((rewards, np.logical_or(terminations, truncations), infos), time.perf_counter() - began)
        return result

    def close(self, **kwargs: Any) -> None:
        """Close the envs, and the run if it is the wrapper's own."""
        super().close(**kwargs)
        self._report.flush()
        if self._owns:
            self.run.close()

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Have the run end as these envs did, unless they go on."""
        try:
            yield
        except BaseException as error:
            self._is_failing = True
            self._note_error(error)
            raise
        if self._is_failing:
            self._is_failing = False
            self._note_error(None)

    @kept_out
    def _note_error(self, error: BaseException | None) -> None:
        if self._owns:
            self.run.note_error(error)

    @kept_out
    def _forget(self, mask: Mask | None) -> None:
        rows = slice(None) if mask is None else mask
        self._returns[rows] = 0.0
        self._lengths[rows] = 0
        self._resets_next[rows] = False

    @kept_out
    def _note(self, turn: Turn, seconds: float) -> None:
        rewards, ends, infos = turn
        counted = ~self._resets_next
        self._returns[counted] += rewards[counted]
        self._lengths[counted] += 1
        self._report.step(rewards, seconds, counted)
        ended, returns, lengths = _recorded(infos) or (ends & counted, self._returns, self._lengths)
        # The vector recorder forgets running episodes when others are reset by mask: it lost a part of these.
        lost = lengths < self._lengths
        returns, lengths = np.where(lost, self._returns, returns), np.where(lost, self._lengths, lengths)
        self._report.episodes(np.flatnonzero(ended), returns[ended], lengths[ended])
        self._returns[ends] = 0.0
        self._lengths[ends] = 0
        if _mode(self.env) == NEXT_STEP:
            self._resets_next = np.array(ends, dtype=np.bool_)


def _mode(env: VectorEnv[Any, Any, Any]) -> str:
    """The autoreset mode's word; an env without one resets on the next step, as Gymnasium assumes."""
    mode = (env.metadata or {}).get("autoreset_mode", NEXT_STEP)
    return str(getattr(mode, "value", mode))


def _recorded(infos: Mapping[str, Any]) -> tuple[Mask, np.ndarray, np.ndarray] | None:
    """What RecordEpisodeStatistics wrote: which envs ended, returns and lengths (zero elsewhere)."""
    for found in (infos, infos.get("final_info")):
        if isinstance(found, Mapping) and "_episode" in found and isinstance(found.get("episode"), Mapping):
            episode = found["episode"]
            mask = np.asarray(found["_episode"], dtype=np.bool_)
            return mask, np.asarray(episode["r"]), np.asarray(episode["l"])
    return None
