"""Optimisers that do not load PyTorch's compiler.

`torch.optim` imports `torch._dynamo` with the first optimiser and with each step, only to keep it from
compiling them: 1.3 s of CPU in each process that learns or acts. Rules: the same numbers to the bit; a
PyTorch that does this otherwise works as it is, slower to begin. Must not know losses or networks.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

import torch

_KEPT: Final = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods of each optimiser that the compiler is kept from."""
_KEPT_AS: Final = "__dynamo_disable"
"""Where `torch._compile` looks for what to call instead, before it imports the compiler to make it."""
_STEP: Final = inspect.unwrap(torch.optim.Adam.step)
"""Without what surrounds it: a switch to no gradients between two calls of the compiler."""


class Adam(torch.optim.Adam):
    """As `torch.optim.Adam`, of which nothing is compiled."""

    def __init__(self, *args: Any, **given: Any) -> None:
        for name in _KEPT:
            plain: Any = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
            if plain is not None and not hasattr(plain, _KEPT_AS):
                setattr(plain, _KEPT_AS, plain)
        super().__init__(*args, **given)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step."""
        return _STEP(self, closure)
