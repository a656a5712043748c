"""Real programs flown into a real collector, and what its page of runs is like over what it recorded.

The collector records what comes, as shipped; that recording is then folded and its page made once a second,
by the code that does both live, and on beyond the last record, so that nobody waits for a run to be lost.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import psutil
import pytest
import yaml

from overwatch.events import Tallied
from overwatch.feeds.recording import open_recording
from overwatch.fold import FAST_NS, SLOW_NS, Fold, next_tick
from overwatch.generate.rules import Plan, recordings, rule_file, steady_alerts, windowed_alerts
from overwatch.otlp.decode import decode_batch
from overwatch.serve.prometheus import RunPage
from tests.e2e.alerting import notation
from tests.e2e.memory_groups import memory_group
from tests.e2e.test_collector_full_disk import mounted
from tests.overwatch.collector.running import running
from tests.promql import named
from tests.real.servers import need

ROOT = Path(__file__).parents[2]
PLAN = Plan(divisor=60, scrape_s=1, update_s=1, run_length_s=600)
"""Holds and look-backs of the shipped rules divided by 60: programs last seconds."""
AT_ONCE = 5
PATIENCE_S = 400
"""For a program that takes a few seconds, on a machine with much other work."""
SYNC_S = 300
"""Within which all that a program left in its spool is delivered."""
BEYOND_S = 75
"""Seconds for which a page is made after the last record: until what is silent is lost."""
Series = dict[str, list[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is run with a fault."""

    name: str
    """Also the id of its run."""
    module: str
    """What `python -m` runs."""
    words: tuple[str, ...] = ()
    """Its arguments, besides where it reports and as which run; `{folder}` is one of its own."""
    twice: bool = False
    """Whether it is started twice, as one and the same."""
    env: Mapping[str, str] = field(default_factory=dict)
    held_s: float = 0.0
    """For how long it stays stopped once it stops itself; then it goes on."""
    disk_mib: int = 0
    """Size of a disk of its own, at `{folder}/disk`."""
    memory_mib: int = 0
    """What its control group allows it."""
    patience_s: float = PATIENCE_S
    """For all of it."""
    cut: bool = False
    """Whether the whole machine is taken to fail when it stops itself: all its processes are killed."""

    def command(self, endpoint: str, folder: Path) -> list[str]:
        """How it is started."""
        words = [word.format(folder=folder) for word in self.words]
        head = [sys.executable, "-m", self.module, *(["train"] if self.module == FLIGHT else [])]
        return [*head, *words, "--run-id", self.name, "--endpoint", endpoint]


FLIGHT = "overwatch_rl.cli"


def fly(programs: Sequence[Program], folder: Path) -> tuple[Path, set[str]]:
    """Run all of them, some at once, into one collector; where its recording lies.

    And which were left out, since this machine gives them no disk or control group of their own.
    """
    with running(folder) as service, ThreadPoolExecutor(AT_ONCE) as pool:
        endpoint = service.context.urls["otlp_http"]
        flown = [pool.submit(_flown, program, endpoint, folder) for program in programs]
        is_flown = [one.result() for one in flown]
    left_out = {program.name for program, was in zip(programs, is_flown, strict=True) if not was}
    return folder / "otlp", left_out


def _flown(program: Program, endpoint: str, folder: Path) -> bool:
    """Run one; whether it could be."""
    own = folder / program.name
    own.mkdir()
    with ExitStack() as stack:
        command = program.command(endpoint, own)
        try:
            if program.disk_mib:
                stack.enter_context(mounted(own / "disk", program.disk_mib))
            if program.memory_mib:
                group = stack.enter_context(memory_group(f"overwatch-{os.getpid()}", program.memory_mib))
                command = group.command(command)
        except pytest.skip.Exception:
            return False
        _run(program, command, own)
    return True


def _run(program: Program, command: list[str], own: Path) -> None:
    env = os.environ | {
        "OVERWATCH_SPOOL_DIR": str(own / "spool"), "OVERWATCH_RING_DIR": str(own), "OVERWATCH_QUIET": "1",
        "OVERWATCH_EXPORTER": "own",
    } | dict(program.env)  # fmt: skip
    with (own / "log").open("wb") as log:
        processes = [
            subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            for _ in range(2 if program.twice else 1)
        ]
        for process in processes:
            if program.held_s or program.cut:
                _held(process, program)
            process.wait(program.patience_s)
        if not program.cut:
            _synced(own / "spool", env, log)


def _synced(spool: Path, env: Mapping[str, str], log: IO[bytes]) -> None:
    """Have delivered what a busy machine could not deliver by the end of a process, as its user would."""
    until = time.monotonic() + SYNC_S
    while any(spool.glob("*")):
        assert time.monotonic() < until, f"{spool} is not empty after {SYNC_S} s"
        sync = (sys.executable, "-m", "overwatch.cli", "sync")
        subprocess.run(sync, cwd=ROOT, env=env, stdout=log, stderr=log, check=False)
        time.sleep(1.0)  # an exporter may still be at it


def _held(process: "subprocess.Popen[bytes]", program: Program) -> None:
    """Wait until it has stopped itself; then let it go on after a while, or kill all of it."""
    while process.poll() is None and psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.05)
    time.sleep(program.held_s)
    if program.cut:
        kill_all(process)
        return
    process.send_signal(signal.SIGCONT)


def kill_all(process: "subprocess.Popen[bytes]") -> None:
    """A process and all that it started, at once."""
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait()


def tallied(recording: Path) -> set[tuple[str, str]]:
    """Row and run of all that was counted."""
    return {
        (one.metric, record.origin.run_id)
        for batch in open_recording(recording).batches()
        for record in decode_batch(batch).records
        if isinstance(record.event, Tallied)
        for one in record.event.series
        if one.sum
    }


def pages(recording: Path, beyond_s: int = BEYOND_S) -> tuple[Series, int]:
    """Each series of the page of runs that a rule asks for, a value a second; and how many seconds."""
    batches = list(open_recording(recording).batches())[::-1]
    fold, page, tick = Fold(), RunPage(), next_tick(batches[-1].stamp) // SLOW_NS * SLOW_NS
    first, last = tick, batches[0].stamp + beyond_s * SLOW_NS
    series: Series = {}
    with np.errstate(all="ignore"):
        while tick <= last:
            due = []
            while batches and batches[-1].stamp <= tick:
                due.append(batches.pop())
            if tick % SLOW_NS:
                fold.take(tick, due)
            else:
                place = (tick - first) // SLOW_NS
                for family in page.families(fold.advance(tick, due, [])):
                    if family.name.startswith(NAMED):
                        # The clock of promtool's tests begins at 0.
                        since = first / SLOW_NS if family.name.endswith("_timestamp_seconds") else 0.0
                        for sample in family.samples:
                            values, value = series.setdefault(named(sample), []), sample.value - since
                            values += [None] * (place - len(values)) + [value]
            tick += FAST_NS
    return series, (tick - first) // SLOW_NS


NAMED = (
    "overwatch_findings", "overwatch_run_findings", "overwatch_run_status", "overwatch_run_non_finite",
    "overwatch_sdk_dropped", "overwatch_run_updates", "overwatch_run_last_checkpoint",
    "overwatch_policy_updates_beyond_limit",
)  # fmt: skip
"""Families that rules about runs ask for."""


def fired(series: Series, seconds: int, folder: Path, plan: Plan = PLAN) -> set[tuple[str, str]]:
    """Alert and run of all alerts that fire on these series, by the shipped rules in `promtool`.

    It is asked to expect none, and names those that there are.
    """
    rules = [*steady_alerts(plan), *windowed_alerts(plan)]
    (folder / "rules.yaml").write_text(rule_file(rules, plan, recorded=recordings(plan)))
    reported = [
        {"series": name, "values": notation(values)}
        for name, values in series.items()
        if any(values) or not name.startswith(("overwatch_run_findings", "overwatch_run_status"))
    ]
    firing = f'ALERTS{{alertstate="firing",rl_run_id!=""}}[{seconds}s]'
    query = {
        "expr": f"group by (alertname, rl_run_id) (last_over_time({firing}))",
        "eval_time": f"{seconds}s",
        "exp_samples": [],
    }
    test = {"interval": "1s", "input_series": reported, "promql_expr_test": [query]}
    case = {"rule_files": ["rules.yaml"], "evaluation_interval": "1s", "tests": [test]}
    (folder / "case.yaml").write_text(yaml.safe_dump(case, width=10**9))
    done = subprocess.run(
        [need("promtool"), "test", "rules", "case.yaml"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    stated = done.stdout + done.stderr
    found = set(re.findall(r'alertname="(\w+)", rl_run_id="([^"]+)"', stated))
    assert found or done.returncode == 0, stated
    return found
