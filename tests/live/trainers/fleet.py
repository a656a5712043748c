"""A fleet of environments that step at their own pace, each in a thread; the trainer reports what came.

From the second second on the first so many of them hang, raise, or give what is no number.
"""

import argparse
import queue
import threading
import time

import numpy as np

from tests.live.trainers.reporting import reporting

Came = tuple[int, float | BaseException]


def env(number: int, flags: argparse.Namespace, came: "queue.Queue[Came]", stop: threading.Event) -> None:
    """Step until `stop` is set; a reward a step."""
    chance, began = np.random.default_rng(number), time.monotonic()
    while not stop.wait(0.1):
        reward = float(chance.normal(1.0, 0.1))
        if time.monotonic() - began > 2.0:
            if number < flags.hang:
                stop.wait()
                return
            if number < flags.crash:
                came.put((number, ConnectionError("the simulator closed its socket")))
                return
            reward = np.log(-1.0) if number < flags.poison else reward
        came.put((number, reward))


def main() -> None:
    """Collect, and report twice a second what came."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--envs", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=12.0)
    for name in ("hang", "crash", "poison"):
        parser.add_argument(f"--{name}", type=int, default=0, help="how many of the envs")
    flags = parser.parse_args()
    came: queue.Queue[Came] = queue.Queue()
    stop = threading.Event()
    run_of = reporting(
        run_id=flags.run_id,
        task="fleet",
        n_envs=flags.envs,
        endpoint=flags.endpoint,
        sample=False,
    )
    with run_of as run, np.errstate(all="ignore"):
        threads = [threading.Thread(target=env, args=(n, flags, came, stop)) for n in range(flags.envs)]
        for thread in threads:
            thread.start()
        for step in range(1, int(flags.seconds * 5)):
            time.sleep(0.2)
            rewards: dict[int, float] = {}
            while not came.empty():
                number, what = came.get()
                if isinstance(what, BaseException):
                    run.env_crashed(number, f"{type(what).__name__}: {what}")
                else:
                    rewards[number] = what
            if rewards:
                run.envs(step=step, env_id=list(rewards), reward=list(rewards.values()))
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
