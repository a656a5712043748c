"""A table that can never hold what a learner leases until its checkpoint is refused, with both numbers."""

from typing import Any

import pytest

from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.room import check_room
from overwatch_rl.replay.base import TableStats
from tests.overwatch_rl.replay.serving import ENCODING

STEP: int = 12 + 8 + 4
"""Bytes of one, without what a chunk has once."""


def config(**checkpoint: Any) -> LearnerConfig:
    """Chunks of 16 steps."""
    return learner_config(
        {"world": "goodhart:small", "batch": {"steps": 16, "envs": 8}, "checkpoint": checkpoint}
    )


def table(items: int | None, size: int | None) -> TableStats:
    """One that is empty."""
    return TableStats(
        name="t", kind="sequences", items=0, steps=0, bytes=0, accepted=0, most_items=items, most_bytes=size
    )


@pytest.mark.parametrize(
    ("items", "size"),
    [(63, 1 << 20), (64, 1024 * STEP - 1)],
)
def test_an_interval_that_never_fits_is_refused(items: int, size: int) -> None:
    """By chunks or by bytes; with what is needed, what there is, and the fix."""
    with pytest.raises(
        ValueError, match=r"checkpoint\.every_steps is 1,024: .* at least 64 chunks and 24,576"
    ) as why:
        check_room(config(every_steps=1024), ENCODING, [table(items, size)])

    assert f"holds {items:,} chunks and {size:,} bytes; save more often, or give --table" in str(why.value)


def test_what_fits_or_is_not_known_is_not_refused() -> None:
    """Servers together hold more than one; a cadence of minutes, or of none, has no steps."""
    small = table(32, 512 * STEP)
    check_room(config(every_steps=1024), ENCODING, [small, small])
    check_room(config(every_minutes=5), ENCODING, [small])
    check_room(config(), ENCODING, [small])
    check_room(config(every_steps=1024), ENCODING, [table(None, None)])
    check_room(config(every_steps=1024), ENCODING, [])
