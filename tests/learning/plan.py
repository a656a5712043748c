"""What is trained, fixed before anything was: seeds, updates, and which mean is compared."""

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from tests.learning.training import CARTPOLE, CARTPOLE_DQN, GOODHART, Job, Training, train

MODES: Final = ("ground_truth", "proxy", "proxy_jammed")
SEEDS: Final = range(5)
AGAIN: Final = range(5, 10)
"""Seeds of the A/A: ours beside ours."""
UPDATES: Final = 100
LAST: Final = slice(-10, None)
"""Updates whose mean return is compared: the last ten."""
COMPARED: Final = {
    GOODHART: ("ground_truth", "true_return"),
    CARTPOLE: ("", "return"),
    CARTPOLE_DQN: ("", "return"),
}
"""World to the mode and the number that are compared with SB3's."""
CLUSTERED: Final = {GOODHART: "ground_truth", CARTPOLE: ""}
"""World to the mode that a cluster trains too; its learner knows the return of episodes alone."""


def jobs() -> list[Job]:
    """Every training."""
    found = [Job("ours", GOODHART, mode, seed, UPDATES) for mode in MODES for seed in SEEDS]
    found += [Job("ours", GOODHART, "ground_truth", seed, UPDATES) for seed in AGAIN]
    found += [Job("SB3", GOODHART, "ground_truth", seed, UPDATES) for seed in SEEDS]
    for world in (CARTPOLE, CARTPOLE_DQN):
        found += [Job("ours", world, "", seed, UPDATES) for seed in (*SEEDS, *AGAIN)]
        found += [Job("SB3", world, "", seed, UPDATES) for seed in SEEDS]
    for world, mode in CLUSTERED.items():
        found += [Job("cluster", world, mode, seed, UPDATES) for seed in SEEDS]
    return found


def trained(wanted: Sequence[Job], processes: int = 2) -> Iterator[Training]:
    """All of them in order, some at once, each on one thread."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawned) as pool:
        for done in pool.map(train, wanted):
            job = done.job
            name = "return" if job.who == "cluster" else COMPARED[job.world][1]
            what = f"{job.who} {job.world} {job.mode} seed {job.seed}"
            sys.stdout.write(f"{what:44} {name} {done.mean(name, LAST):7.2f}  named at {done.named}\n")
            sys.stdout.flush()
            yield done
