"""Any Gymnasium environment as a world: `gym:CartPole-v1`, N of them in this process or one a subprocess.

Owns the way between spaces and specs. What the envs return stays on the host but for the observation, which
the policy sees on its device. Gymnasium resets in the same step, so the observation is of the new episode and
the final one travels beside it. In subprocesses each env is measured, and one that raises is made anew: its
episode is cut short, and the step carries the crash as a fact. A subprocess that dies ends the run, as
Gymnasium cannot replace it. In one process an error of an env ends the run as it is.

Rules: its state cannot be saved. Must not know algorithms, storage or telemetry.

Shape letters: N envs, S an observation, H action heads, D dimensions of an action.
"""

import importlib
import importlib.util
import math
import string
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import torch
from torch import Tensor

from overwatch.events import EnvCrashed, MetricInfo
from overwatch_rl.settings import configured
from overwatch_rl.sync_points import sync_point
from overwatch_rl.types import ActionSpec, Box, Factored, Head, Observation, ObservationSpec, Step, WorldSpec
from overwatch_rl.worlds.base import World, WorldConfig
from overwatch_rl.worlds.watched import CRASH, STEP_TIME, TRACEBACK, Watched

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

WORKERS: Final = ("sync", "subprocess")
GLYPHS: Final = string.digits + string.ascii_letters
"""A character for each code of a grid; with numbers above these, a grid is an image."""
_COLOURS: Final = (1, 3, 4)
_ENDING_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GymConfig:
    """Settings of these worlds alone."""

    workers: str = "sync"
    """`sync` steps all envs in this process, `subprocess` each in one of its own."""
    horizon: int = 0
    """Least steps between two truncations of one env; 0 takes the limit that the env is registered with."""

    def __post_init__(self) -> None:
        if self.workers not in WORKERS:
            raise ValueError(f"workers is {self.workers!r}; use one of {', '.join(WORKERS)}")
        if self.horizon < 0:
            raise ValueError(f"horizon is {self.horizon}; use 0 or more")


def make(part: str, config: WorldConfig, settings: dict[str, object]) -> World:
    """The world of the env called `part`; raises `ValueError` where it cannot be made or has no room here."""
    own = configured(GymConfig, settings, "gym")
    if not part:
        raise ValueError("gym needs the name of an env; write e.g. gym:CartPole-v1")
    if importlib.util.find_spec("gymnasium") is None:
        raise ValueError(f'world gym:{part} needs gymnasium; pip install "esper-overwatch[rl,gym]"')
    import gymnasium

    try:
        _check_name(part)
        envs = _envs(part, config.num_envs, own)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"world gym:{part} cannot be made: {error}") from error
    try:
        return GymWorld(part, envs, config, own)
    except ValueError:
        envs.close()
        raise


def _check_name(name: str) -> None:
    """Raise for an env that is not registered, or whose version is not named: the newest may change."""
    import gymnasium
    from gymnasium.envs.registration import find_highest_version, parse_env_id

    module, colon, env = name.rpartition(":")
    if colon and not module:
        raise ValueError(f"world gym:{name} names no module before the colon; write gym:{env}")
    if module:
        importlib.import_module(module)
    if env not in gymnasium.registry:
        space, base, version = parse_env_id(env)
        newest = find_highest_version(space, base) if version is None else None
        if newest is not None:
            raise ValueError(f"world gym:{name} names no version; write gym:{name}-v{newest}")
        gymnasium.spec(env)


def _envs(name: str, num_envs: int, own: GymConfig) -> "VectorEnv[Any, Any, Any]":
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    if own.workers == "sync":
        return SyncVectorEnv(
            [partial(gymnasium.make, name)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
        )
    watched = cast("Callable[[], gymnasium.Env[Any, Any]]", partial(Watched, name))
    # Not forked from here: this process has threads, whose locks a fork would keep for ever.
    return AsyncVectorEnv([watched] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP, context="spawn")


class GymWorld:
    """N Gymnasium environments."""

    def __init__(
        self, name: str, envs: "VectorEnv[Any, Any, Any]", config: WorldConfig, own: GymConfig
    ) -> None:
        self._name, self._envs, self._own = name, envs, own
        self._num_envs = config.num_envs
        self._device = torch.device(config.device)
        if self._device.type == "meta":
            raise ValueError("device is 'meta'; Gymnasium's envs need values, use a real device")
        self._seen = _sight(name, envs.single_observation_space)
        self._action, self._to_env = _actions(name, envs.single_action_space)
        self._horizon = own.horizon or _limit(name)
        self._since = np.full(config.num_envs, np.iinfo(np.int64).max // 2)  # N, steps since a truncation
        self._returns = np.zeros(config.num_envs)  # N, of the running episodes
        self._clock = 0
        self.spec = WorldSpec(
            task=name,
            metric=MetricInfo(name="return", unit="{reward}", higher_is_better=True),
            reward_mode="env",
            observation=self._seen.spec,
            action=self._action,
            horizon=self._horizon,
            resumable=False,
        )
        """The env's spaces; the metric is what an episode has earned so far."""

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere, env i from `seed` + i."""
        with _clear_deaths(self._name, self._envs):
            observations, _ = self._envs.reset(seed=seed)
        self._returns[:] = 0.0
        self._clock = 0
        return self._to_device(self._seen.features(observations))

    def step(self, actions: Tensor) -> Step:
        """Step all envs; actions: N H int64, or N D float32, which are clamped to the box."""
        if actions.device.type != "cpu":
            with sync_point("gym.actions"):
                actions = actions.cpu()
        sent = self._to_env(actions.numpy())
        with _clear_deaths(self._name, self._envs):
            observations, rewards, terminated, truncated, infos = self._envs.step(sent)
        self._clock += 1
        self._returns += rewards
        truncated = truncated & ~terminated
        facts = self._crashes(infos, terminated, truncated)
        self._check_horizon(truncated)
        columns = {"metric": torch.from_numpy(self._returns.astype(np.float32))}
        if self._own.workers == "subprocess":
            columns["step_time"] = torch.from_numpy(np.asarray(infos[STEP_TIME], dtype=np.float32))
        features = self._seen.features(observations)
        final = None if self._horizon is None else features
        ended = terminated | truncated
        if ended.any():
            self._returns[ended] = 0.0
            if final is not None and "final_obs" in infos:
                final = self._seen.features(_finals(observations, infos, ended))
        return Step(
            observation=self._to_device(features),
            reward=torch.from_numpy(rewards.astype(np.float32)),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            final=final,
            columns=columns,
            facts=facts,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing: what is inside an env is its own."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:
        """Raise `ValueError`: there is no state to load."""
        raise ValueError(f"world gym:{self._name} cannot be resumed, but was given {len(state)} tensors")

    def close(self) -> None:
        """End the envs and their processes; safe to call twice."""
        processes = () if self._envs.closed else getattr(self._envs, "processes", ())
        # By Gymnasium's own way each would be asked first, and one that died would never answer.
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
            self._envs.closed = True
        self._envs.close()

    def _crashes(
        self, infos: Mapping[str, Any], terminated: np.ndarray, truncated: np.ndarray
    ) -> tuple[EnvCrashed, ...]:
        """The facts of envs that raised in this step; changes how their episodes ended.

        An env that crashes is cut short. Where that comes sooner after its last truncation than the horizon
        allows, there is no room for its final observation, and it counts as terminated.
        """
        if CRASH not in infos:
            return ()
        crashed = np.flatnonzero(infos[f"_{CRASH}"])
        for env in crashed:
            has_room = self._horizon is not None and self._since[env] + 1 >= self._horizon
            terminated[env], truncated[env] = not has_room, has_room
        return tuple(
            EnvCrashed(
                at=time.time_ns(),
                env_id=int(env),
                error=str(infos[CRASH][env]),
                step=self._clock,
                traceback=str(infos[TRACEBACK][env]),
            )
            for env in crashed
        )

    def _check_horizon(self, truncated: np.ndarray) -> None:
        self._since += 1
        if not truncated.any():
            return
        early = truncated & (self._since < (self._horizon or np.inf))
        if early.any():
            env = int(np.flatnonzero(early)[0])
            fix = "set horizon to the least steps between two truncations of one env"
            if self._horizon is None:
                raise ValueError(
                    f"gym:{self._name} has no limit of steps, but env {env} was truncated; {fix}"
                )
            raise ValueError(
                f"env {env} was truncated {self._since[env]} steps after its last truncation, "
                f"but horizon is {self._horizon}; {fix}"
            )
        self._since[truncated] = 0

    def _to_device(self, features: Tensor) -> Observation:
        if self._device.type != "cpu":
            with sync_point("gym.results"):
                features = features.to(self._device)
        return Observation(features=features)


@contextmanager
def _clear_deaths(name: str, envs: "VectorEnv[Any, Any, Any]") -> Iterator[None]:
    """Turn the broken pipe of a subprocess that died into a `RuntimeError` that names the env."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        processes = getattr(envs, "processes", ())
        ending = connection.wait([process.sentinel for process in processes], timeout=_ENDING_S)
        for env, process in enumerate(processes):
            if process.sentinel in ending:
                # What it had open is closed a moment before it can be asked how it ended.
                process.join(_ENDING_S)
                raise RuntimeError(
                    f"the subprocess of env {env} of gym:{name} died with exit code {process.exitcode}; "
                    "Gymnasium cannot replace it: find what ended it (memory, a signal), then start again"
                ) from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What observations of one space become."""

    spec: ObservationSpec
    features: Callable[[Any], Tensor]
    """What the envs returned, as N S in the dtype of the spec, on the host."""


def _sight(name: str, space: Any) -> _Sight:
    """How a space of observations is seen; raises `ValueError` for one that is none of ours."""
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            count, start = int(space.n), int(space.start)
            return _Sight(
                spec=ObservationSpec(shape=(count,)),
                features=lambda seen: torch.from_numpy(np.eye(count, dtype=np.float32)[seen - start]),
            )
        case spaces.Box():
            return _boxed(_box_spec(space), tuple(space.shape))
        case _:
            raise ValueError(
                f"gym:{name} shows {space}; wrap it to a Box or Discrete, as FlattenObservation does, "
                "and register that"
            )


def _box_spec(space: Any) -> ObservationSpec:
    """A grid of codes, bytes of a picture, or numbers."""
    shape = tuple(space.shape)
    is_whole = np.issubdtype(space.dtype, np.integer)
    if is_whole and len(shape) == 2 and space.low.min() >= 0 and space.high.max() < len(GLYPHS):
        count = int(space.high.max()) + 1
        codes = tuple(tuple(float(row == column) for column in range(count)) for row in range(count))
        return ObservationSpec(shape=shape, dtype=torch.uint8, codes=codes, glyphs=GLYPHS[:count])
    dtype = torch.uint8 if space.dtype == np.uint8 else torch.float32
    return ObservationSpec(shape=_arranged(shape), dtype=dtype)


def _arranged(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Channels first where there are rows and columns; a vector of anything that is no picture."""
    match shape:
        case (rows, columns, colours) if colours in _COLOURS and rows not in _COLOURS:
            return (colours, rows, columns)
        case (rows, columns):
            return (1, rows, columns)
        case (_,) | (_, _, _):
            return shape
        case _:
            return (math.prod(shape),)


def _boxed(spec: ObservationSpec, shape: tuple[int, ...]) -> _Sight:
    kind = np.uint8 if spec.dtype == torch.uint8 else np.float32
    is_turned = len(shape) == 3 and spec.shape != shape  # rows, columns, colours

    def features(seen: Any) -> Tensor:
        """Return observations as rows of features, shape (N, ...)."""
        array = np.asarray(seen).astype(kind, copy=False)
        arranged = np.moveaxis(array, -1, 1) if is_turned else array
        return torch.from_numpy(np.ascontiguousarray(arranged.reshape(len(array), *spec.shape)))

    return _Sight(spec=spec, features=features)


def _actions(name: str, space: Any) -> tuple[ActionSpec, Callable[[np.ndarray], Any]]:
    """What actions of a space are here, and how N of them become what the envs take."""
    from gymnasium import spaces

    def labels(count: int, start: int) -> tuple[str, ...]:
        """Return the words of so many choices."""
        return tuple(str(start + number) for number in range(count))

    def factored(counts: list[int], starts: list[int]) -> Factored:
        """Return a head for each part of an action."""
        heads = tuple(
            Head(name="op" if number == 0 else f"arg{number}", labels=labels(count, start))
            for number, (count, start) in enumerate(zip(counts, starts, strict=True))
        )
        return Factored(heads=heads, uses=((True,) * len(heads),) * counts[0])

    match space:
        case spaces.Discrete():
            start = int(space.start)
            return factored([int(space.n)], [start]), lambda taken: taken[:, 0] + start
        case spaces.MultiDiscrete() if space.nvec.ndim == 1:
            starts = space.start.astype(np.int64)
            return factored(space.nvec.tolist(), starts.tolist()), lambda taken: taken + starts
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = (end.flatten().astype(np.float32) for end in (space.low, space.high))

            def boxed(taken: np.ndarray) -> np.ndarray:
                """Return actions within the space's bounds, in its shape."""
                within: np.ndarray = np.clip(taken, low, high).astype(space.dtype)
                return within.reshape(-1, *space.shape)

            return Box(low=tuple(low.tolist()), high=tuple(high.tolist())), boxed
        case _:
            raise ValueError(
                f"gym:{name} takes {space}; use an env with Discrete, one-dimensional MultiDiscrete or "
                "floating Box actions"
            )


def _limit(name: str) -> int | None:
    """The limit of steps that an env is registered with; the module before its name is imported by now."""
    import gymnasium

    return gymnasium.spec(name.rpartition(":")[2]).max_episode_steps


def _finals(observations: Any, infos: Mapping[str, Any], ended: np.ndarray) -> Any:
    """The observations, with the final ones where an episode ended."""
    finals = np.array(observations)
    for env in np.flatnonzero(ended):
        finals[env] = infos["final_obs"][env]
    return finals
