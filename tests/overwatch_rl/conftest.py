"""What the flight's tests share."""

from collections.abc import Iterator

import pytest
import torch

from tests.overwatch_rl.servers import moto_address

__all__ = ["moto_address"]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Torch's threads wait actively for one another, which starves tests that run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
