"""Optimisers that do not load PyTorch's compiler.

`torch.optim` imports `torch._dynamo` with the first optimiser and with each step, only to keep it from
compiling them: 1.3 s of CPU in each process that learns or acts. Rules: the same numbers to the bit, and no
other optimiser of the process is changed. Must not know losses or networks.
"""

import inspect
from typing import Any

import torch


class Adam(torch.optim.Adam):
    """As `torch.optim.Adam`, of which the compiler is kept from nothing; it has no hooks of a step."""

    add_param_group: Any = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad: Any = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict: Any = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict: Any = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    step.hooked = True
