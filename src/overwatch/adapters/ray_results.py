"""A result of RLlib or of Ray Tune, a nested mapping, as numbers of an update.

Rules: nested keys are joined by `/`. The only module of a policy has the name that RLlib gives one by
default, as the table of its names has it; of several each keeps its own, and its KL is a head of the
policy's. RLlib's NaN is the mean of nothing where nothing was counted: such a number is absent. What RLlib
states of its connectors and of the process is no number of training. Must not know Ray's classes.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gymnasium import spaces

from overwatch.adapters.numbers import numbers, scalar
from overwatch.adapters.watching import plain
from overwatch.catalog import CUSTOM_PREFIX, KL, Library

_ALL_MODULES: Final = "__all_modules__"
_DEFAULT: Final = "default_policy"
_KL: Final = "mean_kl_loss"
_OF_APPO: Final = "mean_IS"
_MACHINERY: Final = (
    "connector", "sum_episodes_length", "trainable_parameters", "since_restore", "since_last_restore",
    "actor_manager",
)  # fmt: skip
_BOOKKEEPING: Final = frozenset({"training_iteration", "update"})
"""Of a report: its number, and a word that `run.update` takes otherwise."""
_TOOK: Final = "time_this_iter_s"
_PROCESS: Final = frozenset({"config", "pid", "timestamp"})


def rllib_numbers(result: Mapping[str, Any], *, has_kl: bool = True) -> dict[str, float]:
    """The numbers of one `train()`, as `run.update` takes them.

    Without the loss of its KL RLlib logs a zero that it never computed: then `has_kl` is false. APPO's is the
    divergence from its target network, which no row is. IMPALA's mean of a loss comes before its sum.
    """
    paths = dict(sorted(flat(result).items(), key=lambda item: "/mean_" not in item[0]))
    modules = {path.split("/")[1] for path in paths if path.startswith("learners/")} - {_ALL_MODULES}
    named: dict[str, Any] = {}
    for path, value in paths.items():
        area, module, name = (*path.split("/", 2), "", "")[:3]
        if scalar(value) is None or _is_absent(path, value, paths):
            continue
        if area == "learners" and module in modules:
            if name == _KL and not has_kl:
                continue
            if len(modules) == 1:
                path = f"{area}/{_DEFAULT}/{name}"  # noqa: PLW2901 the name that the table has
            elif name == _KL:
                path = f"{KL.short}/{module}"  # noqa: PLW2901 a head
        named[path] = value
    found = numbers(named, Library.RLLIB)
    if f"learners/{_DEFAULT}/{_OF_APPO}" in named and KL.short in found:
        found[f"{CUSTOM_PREFIX}learners/{_DEFAULT}/{_KL}"] = found.pop(KL.short)
    return found


def _is_absent(path: str, value: object, paths: Mapping[str, Any]) -> bool:
    """Whether a NaN is the mean of nothing: no minibatch was trained, no episode ended."""
    number = scalar(value)
    if number is None or not math.isnan(number):
        return False
    parts = path.split("/")
    count = [*parts[: parts.index("env_runners") + 1], "num_episodes"] if "env_runners" in parts else None
    counted = scalar(paths.get("/".join(count or [*parts[:2], "num_module_steps_trained"])))
    return counted is None or not counted > 0


def tune_numbers(result: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one report: RLlib's by its table, all others by the names that their author gave."""
    if "env_runners" in result:
        return rllib_numbers(result, has_kl=config.get("use_kl_loss", True))
    found = {name: scalar(value) for name, value in flat(result).items() if name not in _BOOKKEEPING}
    if _TOOK in found:
        found.setdefault("update_time", found.pop(_TOOK))
    return {name: value for name, value in found.items() if value is not None}


def settings(config: Mapping[str, Any], space: object) -> dict[str, Any]:
    """A configuration's plain entries, with what the judgement of entropy and of gradients needs."""
    found = plain(config)
    if isinstance(space, spaces.Discrete):
        found["n_actions"] = int(space.n)
    if found.get("grad_clip_by") == "global_norm" and found.get("grad_clip"):
        found["max_grad_norm"] = found["grad_clip"]
    return found


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """All values by the path of their keys."""
    return dict(_walk(result, ""))


def _walk(result: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in result.items():
        path = f"{above}{key}"
        if path in _PROCESS or any(word in str(key) for word in _MACHINERY):
            continue
        # Not any mapping: to ask that of a number takes Python a tenth of a second where Ray is imported.
        if isinstance(value, dict):
            yield from _walk(value, f"{path}/")
        else:
            yield path, value
