"""REINFORCE on a bandit, over all ranks of a launch; started again, it goes on from its checkpoint.

The launcher gives rank and meeting point by RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import overwatch.sdk  # Overwatch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--updates", type=int, default=60)
parser.add_argument("--envs", type=int, default=16)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
args = parser.parse_args()

rank, ranks, local = (int(os.environ.get(name, default)) for name, default in
                      (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))  # fmt: skip
on_gpu = torch.cuda.is_available()
device = f"cuda:{local}" if on_gpu else "cpu"
if ranks > 1:
    dist.init_process_group("nccl" if on_gpu else "gloo")
asked = torch.zeros(1, device=device)
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, _: asked.fill_(number))

torch.manual_seed(args.seed + rank)
rewards_of = torch.linspace(0, 1, 8, device=device)
logits = torch.zeros(8, device=device, requires_grad=True)
optimiser = torch.optim.SGD([logits], lr=0.5)
first = 1
if args.checkpoint.exists():
    kept = torch.load(args.checkpoint, weights_only=True)
    first, _ = kept["update"] + 1, logits.data.copy_(kept["logits"])


def over_ranks(value: torch.Tensor, operation: dist.ReduceOp = dist.ReduceOp.SUM) -> torch.Tensor:
    """The same on every rank."""
    if ranks > 1:
        dist.all_reduce(value, operation)
    return value


setting = {"n_envs": args.envs, "updates": args.updates, "devices": [device]}
run = overwatch.sdk.start(task="bandit", **setting)  # Overwatch
for update in range(first, args.updates + 1):
    policy = torch.distributions.Categorical(logits=logits)
    arms = policy.sample((args.envs,))
    rewards = rewards_of[arms] + 0.1 * torch.randn(args.envs, device=device)
    loss = -((rewards - rewards.mean()) * policy.log_prob(arms)).mean()
    optimiser.zero_grad()
    loss.backward()
    over_ranks(logits.grad).div_(ranks)
    optimiser.step()
    reported = {"return_": rewards.mean(), "entropy_nats": policy.entropy().mean(), "policy_loss": loss}
    run.update(update=update, **reported)  # Overwatch
    run.envs(step=update, reward=rewards, lane=device)  # Overwatch
    stop = int(over_ranks(asked.clone(), dist.ReduceOp.MAX))
    if rank == 0 and (update % 50 == 0 or stop):
        part = args.checkpoint.with_suffix(".part")
        torch.save({"update": update, "logits": logits.detach()}, part)
        part.replace(args.checkpoint)
    if stop:
        sys.exit(128 + stop)
run.close()  # Overwatch
if ranks > 1:
    dist.destroy_process_group()
