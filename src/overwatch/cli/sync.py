"""`overwatch sync`: deliver what killed trainers left, and say what became of it."""

import logging
import sys
from pathlib import Path

from overwatch.sdk.exporter.orphan_recovery import Delivered, deliver_all


def sync(root: Path | None, endpoint: str | None, timeout_s: float) -> int:
    """Print a line a producer; the exit code is 0 when nothing is left to deliver."""
    logging.basicConfig(format="overwatch: %(message)s", stream=sys.stderr, level=logging.WARNING)
    found = []
    for delivered in deliver_all(root, endpoint, timeout_s):
        print(_line(delivered), flush=True)
        found.append(delivered)
    if not found:
        print("nothing to deliver")
    return 0 if all(delivered.is_done for delivered in found) else 1


def _line(delivered: Delivered) -> str:
    parts = [f"{delivered.run_id}: {delivered.records} records delivered"]
    if not delivered.is_done:
        parts.append(f"{delivered.kept} kept for the next time")
    parts += [f"{count} lost ({reason})" for reason, count in sorted(delivered.dropped.items())]
    return ", ".join(parts)
