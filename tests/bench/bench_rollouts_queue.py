"""What the queue of rollouts itself costs, without HTTP and disk: CPU time for each group in and out.

For one and for 50 environments, and for groups of one, two and three sizes: so many groups are accepted, then
batches of 512 sequences are assembled, leased and acknowledged from what lies there. Prints, gates nothing.

    python tests/bench/bench_rollouts_queue.py [--groups 10000] [--batches 20]
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Limits, Offer
from overwatch_rl.rollouts.state import State
from tests.overwatch_rl.rollouts.driven import env_of, registration

NOW = 10**18
BATCH = 512


def filled(sizes: tuple[int, ...], envs: int, groups: int) -> tuple[State, float]:
    """A queue of so many groups, and the microseconds that accepting each took."""
    state = State(limits=Limits(max_queued_batches=groups))
    queue.register_trainer(state, registration(BATCH), NOW)
    queue.batch(state, NOW)
    for env in range(envs):
        queue.register_env(state, env_of(group_size=sizes[env % len(sizes)]), NOW)
    began = time.process_time()
    for number in range(groups):
        env = number % envs
        offer = Offer(env_id=env, sequences=sizes[(env if envs > 1 else number) % len(sizes)], tokens=4096)
        queue.accept(state, [offer], NOW)
    return state, (time.process_time() - began) / groups * 1e6


def served(state: State, batches: int) -> tuple[float, float]:
    """The microseconds of each group that was served, and groups of a batch."""
    groups = 0
    began = time.process_time()
    for _ in range(batches):
        found = queue.batch(state, NOW, is_explicit=True)
        if found.lease is None:
            sys.exit(f"no batch: {found}; use fewer --batches or more --groups")
        groups += len(found.items)
        queue.acknowledge(state, found.lease, NOW)
    return (time.process_time() - began) / groups * 1e6, groups / batches


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=20)
    flags = parser.parse_args()
    print(f"{flags.groups} groups queued, batches of {BATCH} sequences; CPU time")
    print("sizes    envs   in, us a group   out, us a group   groups a batch")
    for sizes in ((8,), (8, 6), (8, 6, 5)):
        for envs in (1, 50):
            state, accept_us = filled(sizes, envs, flags.groups)
            out_us, per_batch = served(state, flags.batches)
            name = "/".join(map(str, sizes))
            inward, out = f"{accept_us:>16.1f}", f"{out_us:>17.1f}"
            print(f"{name:<8} {envs:>4} {inward} {out} {per_batch:>16.0f}")


if __name__ == "__main__":
    main()
