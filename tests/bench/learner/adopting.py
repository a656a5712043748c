"""Run as a program: an actor that takes weights as they come and has a network act with them.

For each version it prints the number, when it acted first by the monotonic clock, and the process's CPU, ns.
"""

import sys
import time

import msgspec
import torch

from overwatch_rl.artifacts.signing import Verifier
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.manifest import Accepted
from overwatch_rl.weights.subscriber import Subscriber

WAIT_S = 0.25
"""As an actor's."""

torch.set_num_threads(1)
place, public = msgspec.json.decode(sys.argv[1], type=Place), sys.argv[2]
options = msgspec.json.decode(sys.argv[3]) if len(sys.argv) > 3 else {}
accepted = Accepted(run_id=place.run_id, verifier=Verifier(public))
subscriber = Subscriber(open_channel(place), accepted, **options)
held: dict[str, torch.Tensor] = {}
while True:
    found = subscriber.poll()
    if found is None:
        subscriber.wait(WAIT_S)
        continue
    held = held or {name: torch.empty_like(one, dtype=torch.float32) for name, one in found.tensors.items()}
    for name, one in found.tensors.items():  # As `load_state_dict` does.
        held[name].copy_(one)
    now, cpu = time.monotonic_ns(), time.process_time_ns()
    print(found.version.number, now, cpu, flush=True)
