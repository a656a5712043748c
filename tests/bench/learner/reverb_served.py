"""dm-reverb's server and a client of it, for `served`: asked by lines, answers with a rate as JSON.

Runs in a Python of its own, without this project. Items are of 64 steps: written step by step as its
examples do, or as one step that is a whole block, its fastest form.

    python reverb_served.py client|server PORT
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

STEPS, SIZE = 64, 726
ITEMS = 1024
_SCHEDULED = 2
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "GLOG_minloglevel": "3"}


def rows() -> dict[str, Any]:
    """Of one item."""
    random = np.random.default_rng(0)
    numbers = {name: random.standard_normal(STEPS, np.float32) for name in ("log_probs", "value", "reward")}
    observation = random.standard_normal((STEPS, SIZE), np.float32)
    return {"observation": observation, "action": np.zeros(STEPS, np.int64), **numbers}


def serve(port: int) -> None:
    """Until it is killed."""
    import reverb
    import tensorflow as tf

    table = reverb.Table(
        "t",
        reverb.selectors.Uniform(),
        reverb.selectors.Fifo(),
        max_size=ITEMS,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={
            name: tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)) for name, array in rows().items()
        },
    )
    server = reverb.Server([table], port=port)
    print("up", flush=True)
    server.wait()


class Client:
    """Calls of a server."""

    def __init__(self, port: int) -> None:
        import reverb
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._client = reverb.Client(f"127.0.0.1:{port}")
        self._rows = rows()
        self._dataset: Any = None
        self._make = lambda: iter(
            reverb.TrajectoryDataset.from_table_signature(
                f"127.0.0.1:{port}", "t", max_in_flight_samples_per_worker=16, num_workers_per_iterator=1
            )
        )

    def add_by_steps(self, items: int) -> None:
        """Step by step."""
        steps = [{name: array[place] for name, array in self._rows.items()} for place in range(STEPS)]
        with self._client.trajectory_writer(num_keep_alive_refs=STEPS) as writer:
            for _ in range(items):
                for step in steps:
                    writer.append(step)
                held = {name: column[-STEPS:] for name, column in writer.history.items()}
                writer.create_item("t", 1.0, held)
                writer.flush(8)
            writer.flush()

    def add_by_blocks(self, items: int) -> None:
        """A whole item as one step."""
        with self._client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for _ in range(items):
                writer.append(self._rows)
                writer.create_item("t", 1.0, {name: column[-1] for name, column in writer.history.items()})
                writer.flush(8)
            writer.flush()

    def sample_by_client(self, items: int) -> None:
        """Arrays of numpy."""
        for sample in self._client.sample("t", items, emit_timesteps=False):
            arrays = [np.asarray(column) for column in sample.data]
            if (STEPS, SIZE) not in {array.shape for array in arrays}:
                raise AssertionError

    def sample_by_dataset(self, items: int) -> None:
        """Tensors, as its documentation has it."""
        if self._dataset is None:
            self._dataset = self._make()
        for _ in range(items):
            if next(self._dataset).data["observation"].numpy().shape != (STEPS, SIZE):
                raise AssertionError


def main(role: str, port: int) -> None:
    """Answer lines: the name of a call, a space, items."""
    if role == "server":
        serve(port)
    server = subprocess.Popen(
        [sys.executable, __file__, "server", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if server.stdout is None or not server.stdout.readline():
        raise SystemExit("reverb's server did not start")
    client = Client(port)
    client.add_by_blocks(ITEMS)
    print("ready", flush=True)
    for line in sys.stdin:
        name, items = line.split()
        call: Callable[[int], None] = getattr(client, name)
        before = time.clock_gettime(~server.pid << 3 | _SCHEDULED) + time.process_time()
        call(int(items))
        used = time.clock_gettime(~server.pid << 3 | _SCHEDULED) + time.process_time() - before
        print(json.dumps(int(items) * STEPS / used), flush=True)
    server.kill()
    server.wait()
    os._exit(0)  # its threads do not end by themselves


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
