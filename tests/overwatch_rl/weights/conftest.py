"""What the tests of weights share."""

from pathlib import Path

import pytest

from tests.overwatch_rl.servers import moto_address, redis_server
from tests.overwatch_rl.weights.made import RUN, Run

__all__ = ["moto_address", "redis_server"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The folder of a run."""
    return Run(tmp_path / RUN)
