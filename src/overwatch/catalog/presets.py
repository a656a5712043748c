"""The sets of limits that a run may be judged by; a row says which of them it differs in."""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DEFAULT: Final = "ppo"

PRESETS: Final = MappingProxyType(
    {
        "ppo": "PPO with discrete actions; calibrated on healthy runs",
        "ppo-continuous": "PPO with continuous actions: entropy has no floor, log densities have no ceiling",
        "grpo": "language models without a critic: groups, answers cut, sampler against trainer",
        "esper": "the original system's absolute limits",
    }
)
"""Name to what it is for. KL's limits are the same in all of them."""

WORDS: Final[Mapping[str, Mapping[str, str]]] = {"grpo": {"kl": "kl_reference"}}
"""Short names of the policy's rows that users of a preset mean by words which others mean otherwise."""


def parse_preset(name: str) -> str:
    """The preset of this name; raises `ValueError` that names the nearest one."""
    if name in PRESETS:
        return name
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(PRESETS)}"
    raise ValueError(f"no preset is called {name!r}; {hint}")
