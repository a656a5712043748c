"""Whether a table of replay holds what a learner leases until its next checkpoint. Pure."""

from collections.abc import Sequence

from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.replay.base import TableStats
from overwatch_rl.replay.chunk import Encoding


def check_room(config: LearnerConfig, encoding: Encoding, tables: Sequence[TableStats]) -> None:
    """Raise `ValueError` where `checkpoint.every_steps` is more than the tables together can ever hold.

    What was learned from stays in its table until a checkpoint contains it. A chunk has at most `batch.steps`
    steps, so this is the least that is needed; where episodes are short, the learner saves sooner by itself.
    """
    every = config.checkpoint.every_steps
    most_items, most_bytes = (
        _sum([one.most_items for one in tables]),
        _sum([one.most_bytes for one in tables]),
    )
    if every is None or most_items is None or most_bytes is None:
        return
    items, size = -(-every // config.batch.steps), every * encoding.step_bytes
    if items > most_items or size > most_bytes:
        raise ValueError(
            f"checkpoint.every_steps is {every:,}: replay keeps that much until a checkpoint, at least "
            f"{items:,} chunks and {size:,} bytes, and its table holds {most_items:,} chunks and "
            f"{most_bytes:,} bytes; save more often, or give --table of the replay server more items or mib"
        )


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None
