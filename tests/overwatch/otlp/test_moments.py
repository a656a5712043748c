"""What a point of a foreign producer's metrics is about: a whole, or a part that no row asks for."""

import pytest

from overwatch.catalog.machine import DISK_TOTAL, DISK_USED, RAM_USED
from overwatch.catalog.metric import Metric
from overwatch.otlp.moments import is_meant


@pytest.mark.parametrize(
    ("row", "attributes", "meant"),
    [
        (RAM_USED, {"system.memory.state": "used"}, True),
        (RAM_USED, {"system.memory.state": "free"}, False),
        (DISK_USED, {"system.filesystem.state": "used"}, True),
        (DISK_USED, {"system.filesystem.state": "free"}, False),
        (DISK_USED, {"system.filesystem.state": "used", "system.filesystem.mountpoint": "/snap/x"}, False),
        (DISK_USED, {"state": "used", "device": "/dev/sda1", "mountpoint": "/"}, False),
        (DISK_TOTAL, {"system.device": "/dev/sda1"}, False),
        (DISK_TOTAL, {}, True),
    ],
)
def test_one_of_several_disks_is_not_the_runs(
    row: Metric, attributes: dict[str, str], *, meant: bool
) -> None:
    """An agent that reports every mount point does not name the one that checkpoints go to."""
    assert is_meant(row, attributes) is meant
