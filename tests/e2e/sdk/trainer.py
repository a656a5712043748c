"""A small trainer as its own program: a loop that emits, and an honest diary of what it has emitted.

Run as `python trainer.py PLAN`, a JSON object of `Plan`'s fields. Each step's number is in the diary before
the step (`b 7`) and after it (`a 7`), in one write each, so that the diary outlives a kill. The last line of
its output is an `Ending`.
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """What the trainer does."""

    run_id: str
    diary: str
    endpoint: str | None
    steps: int = 1_000_000
    """Most steps; it ends sooner when `until` is there."""
    until: str | None = None
    """A file whose appearance ends the loop."""
    pace_s: float = 0.002
    flush_s: float | None = None
    close_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Ending:
    """What the trainer saw."""

    steps: int
    accepted: int
    delivered: bool
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    flushed: bool | None = None
    flush_took_s: float = 0.0
    close_took_s: float = 0.0


def main(plan: Plan) -> Ending:
    """Train, flush, close."""
    import overwatch.sdk

    run = overwatch.sdk.start(run_id=plan.run_id, endpoint=plan.endpoint, n_envs=4, sample=False)
    diary = os.open(plan.diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(diary, b"p %d\n" % (run.exporter_pid or 0))
    step = 0
    while step < plan.steps and not (plan.until and Path(plan.until).exists()):
        step += 1
        os.write(diary, b"b %d\n" % step)
        one_step(run, step)
        os.write(diary, b"a %d\n" % step)
        time.sleep(plan.pace_s)
    return end(run, plan, step)


def one_step(run: Any, step: int) -> None:
    """What is emitted of one step: an update, columns, a line, an episode."""
    run.update(update=step, kl_divergence=0.001, entropy=0.5)
    run.envs(step=step, reward=[float(step), 1.0, 2.0, 3.0])
    run.log(f"line {step}")
    run.episodes(env_id=[step % 4], episode_return=[float(step)])


def end(run: Any, plan: Plan, steps: int) -> Ending:
    """Flush if asked, close, and measure both."""
    flushed, flush_took_s = None, 0.0
    if plan.flush_s is not None:
        began = time.monotonic()
        flushed = run.flush(plan.flush_s)
        flush_took_s = time.monotonic() - began
    began = time.monotonic()
    report = run.close(plan.close_s)
    return Ending(
        steps=steps,
        accepted=report.accepted,
        delivered=report.delivered,
        kept=report.kept,
        dropped=report.dropped,
        refused=report.refused,
        flushed=flushed,
        flush_took_s=flush_took_s,
        close_took_s=time.monotonic() - began,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(main(Plan(**json.loads(sys.argv[1]))))))
