"""What a step of morphogenesis's hosts costs, beside the same in JAX, beside a loop over hosts; and of a run.

A host-step is two minibatches and a validation of one host with three branches, all connected or isolated.
CPU seconds of one thread, in pairs that take turns; a ratio is the median of the pairs with the least and the
most. JAX computes the same numbers, which is checked first; it runs in a Python of its own, made here once,
and where that cannot be made the reason is printed in its place. Prints, gates nothing.

    python tests/bench/bench_morph.py [--pairs 7] [--hosts 4 32 256]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.config import PRESETS
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.morphogenesis.data import digits
from overwatch_rl.worlds.morphogenesis.hosts.base import Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP
from overwatch_rl.worlds.morphogenesis.hosts.mlp import BATCH_SIZE, BATCHES_PER_STEP, MLPHosts
from overwatch_rl.worlds.morphogenesis.hosts.stacked import BETAS, LEARNING_RATE
from tests.bench.sdk.host import Cores, Weather, about
from tests.bench.sdk.stats import Goals, emit

PYTHON: Final = Path(__file__).parents[2] / "build/bench-jax/bin/python"
NEEDED: Final = ("jax==0.10.2",)
SLOTS: Final = 3
CHECKED_STEPS: Final = 3
HOST_STEPS: Final = 1024
"""Of one measurement, at least two steps."""
CPU: Final = torch.device("cpu")


def main(arguments: list[str]) -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--hosts", type=int, nargs="+", default=[4, 32, 256])
    requested = parser.parse_args(arguments)
    torch.set_num_threads(1)
    goals, weather = Goals(), Weather()
    emit(about(Cores()))
    emit(f"torch {torch.__version__}, {requested.pairs} pairs; {weather.look()}")
    missing = _installed()
    for num_hosts in requested.hosts:
        emit(f"\n== {num_hosts} hosts of {SLOTS} slots, host-steps a CPU second")
        _beside_jax(num_hosts, requested.pairs, goals, missing)
    _beside_loop(requested.pairs, goals)
    _shares()
    emit("\n" + "\n".join(goals.lines))
    emit(weather.look())


def wired(num_hosts: int, *, live: float = 1.0) -> Wiring:
    """Branches of all blueprints and ways to blend, a third in isolation; a share `live` of them."""
    random = torch.Generator().manual_seed(num_hosts)
    shape = (num_hosts, SLOTS)
    present = torch.rand(shape, generator=random) < live
    isolated = (torch.rand(shape, generator=random) < 1 / 3) & present
    return Wiring(
        alpha=torch.where(present & ~isolated, 0.5, 0.0),
        isolated=isolated,
        blueprint=torch.randint(len(MLP) - 1, shape, generator=random),
        algorithm=torch.randint(0, 3, shape, generator=random),
    )


def begun(num_hosts: int, wiring: Wiring) -> MLPHosts:
    """Hosts with a branch in every slot."""
    hosts = MLPHosts(num_hosts, SLOTS, digits(), CPU)
    hosts.seed(3)
    hosts.restart()
    hosts.germinate(torch.arange(num_hosts * SLOTS))
    hosts.cut(wiring)
    return hosts


def timed(hosts: MLPHosts, wiring: Wiring, steps: int) -> float:
    """Host-steps a CPU second."""
    began = time.process_time()
    for _ in range(steps):
        hosts.train(wiring)
        hosts.validate(wiring)
    return steps * len(wiring.alpha) / (time.process_time() - began)


def _beside_jax(num_hosts: int, pairs: int, goals: Goals, missing: str | None) -> None:
    wiring, steps = wired(num_hosts), max(2, HOST_STEPS // num_hosts)
    hosts = begun(num_hosts, wiring)
    some = wired(num_hosts, live=1 / 3)
    if missing is not None:
        timed(hosts, wiring, steps)
        rates = [timed(hosts, wiring, steps) for _ in range(pairs)]
        emit(f"  ours {statistics.median(rates):10,.0f}; JAX skipped: {missing}")
        return
    with _jax(hosts, wiring) as peer:
        difference, images = _difference(hosts, wiring, peer)
        emit(
            f"  the same losses within {difference:.1e} and classes but for {images:.0f} images of a host, "
            f"after {CHECKED_STEPS} steps"
        )
        timed(hosts, wiring, steps)
        peer(f"run {steps}")
        ours, theirs, fewer = [], [], []
        for _ in range(pairs):
            ours.append(timed(hosts, wiring, steps))
            theirs.append(steps * num_hosts / peer(f"run {steps}")["cpu_s"])
            fewer.append(timed(hosts, some, steps))
    for name, rates in (
        ("ours", ours),
        ("jax.vmap and jit", theirs),
        ("ours, a third of the branches", fewer),
    ):
        emit(f"  {name:30} {statistics.median(rates):10,.0f} ({min(rates):,.0f} to {max(rates):,.0f})")
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    emit(f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    goals.most(f"{num_hosts} hosts: losses apart from JAX's", difference, 1e-4)
    goals.least(f"{num_hosts} hosts: ratio to jax.vmap and jit", statistics.median(ratios), 0.7)


@contextmanager
def _jax(hosts: MLPHosts, wiring: Wiring) -> Iterator[Any]:
    """A process that computes the same with JAX; give it a line, it answers."""
    data = digits()
    random = torch.Generator().manual_seed(3)  # as the hosts' order was seeded
    shape = (len(wiring.alpha), BATCH_SIZE)
    draws = CHECKED_STEPS * BATCHES_PER_STEP
    index = torch.stack([torch.randint(len(data.train_y), shape, generator=random) for _ in range(draws)])
    given = {
        "tx": data.train_x, "ty": data.train_y, "vx": data.valid_x, "vy": data.valid_y,
        "alpha": wiring.alpha, "isolated": wiring.isolated, "algorithm": wiring.algorithm,
        "seen": hosts._seen[wiring.blueprint][..., :-1, :-1].transpose(-1, -2),
        "floor": hosts._floors[wiring.blueprint][..., :-1, 0],
        "index": index.view(CHECKED_STEPS, BATCHES_PER_STEP, *shape),
    }  # fmt: skip
    for part, stacked, lead in (
        ("host", hosts.hosts, shape[:1]),
        ("branch", hosts.branches, wiring.alpha.shape),
    ):
        for number, weight in enumerate(_plain(stacked.weights)):
            given[f"{part}{number}"] = weight.view(*lead, *weight.shape[1:])
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **{name: value.contiguous().numpy() for name, value in given.items()})
        file = Path(__file__).parent / "peers/jax_hosts.py"
        with subprocess.Popen(
            [str(PYTHON), str(file), str(inputs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def requested(line: str) -> Any:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            yield requested
            process.stdin.close()


def _plain(weights: list[Tensor]) -> list[Tensor]:
    """Two layers and their biases, inputs first, of networks whose last unit and pixel are 1."""
    first, last = (weight.transpose(1, 2) for weight in weights)
    return [
        first[:, :-1, :-1].contiguous(),
        first[:, -1, :-1].contiguous(),
        last[:, :-1].contiguous(),
        last[:, -1],
    ]


def _difference(hosts: MLPHosts, wiring: Wiring, peer: Any) -> tuple[float, float]:
    """The largest between ours and JAX's losses; and between shares of images, in images."""
    for _ in range(CHECKED_STEPS):
        loss = hosts.train(wiring).loss
        measured = hosts.validate(wiring)
    found = peer("check")
    accuracy, valid_loss, contribution = found["measured"]

    def apart(*pairs: tuple[Tensor, list[Any]]) -> float:
        return max(float((mine - torch.tensor(other)).abs().max()) for mine, other in pairs)

    shares = apart((measured.accuracy, accuracy), (measured.contribution, contribution))
    return apart((loss, found["loss"]), (measured.loss, valid_loss)), shares * len(digits().valid_y)


def _beside_loop(pairs: int, goals: Goals) -> None:
    """32 hosts at once against the same arithmetic by autograd, host after host."""
    num_hosts, steps = 32, 16
    wiring = wired(num_hosts)
    hosts, loop = begun(num_hosts, wiring), _Loop(wiring)
    emit(f"\n== {num_hosts} hosts beside a loop over hosts by autograd, host-steps a CPU second")
    timed(hosts, wiring, steps)
    loop.timed(1)
    ours, theirs = [], []
    for _ in range(pairs):
        ours.append(timed(hosts, wiring, steps))
        theirs.append(loop.timed(1))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    emit(f"  ours {statistics.median(ours):,.0f}, loop {statistics.median(theirs):,.0f}")
    emit(f"  ratio {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
    goals.least("ratio to a loop over hosts", statistics.median(ratios), 10)


def _shares() -> None:
    """Where the CPU of a training goes: the preset, three updates after one."""
    preset = PRESETS["morphogenesis"]
    emit(f"\n== {preset.envs} hosts, a training with the preset: shares of its CPU")
    spent = dict.fromkeys(("world", "policy", "update"), 0.0)

    def counted(owner: object, method: str, part: str) -> None:
        call = getattr(owner, method)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            found = call(*args, **kwargs)
            spent[part] += time.process_time() - began
            return found

        setattr(owner, method, wrapped)

    for updates in (1, 3):
        world = make("morphogenesis", WorldConfig(num_envs=preset.envs))
        algorithm = PPO(world.spec, preset.learned, seed=0)
        spent.update(dict.fromkeys(spent, 0.0))
        for owner, method, part in (
            (world, "step", "world"), (algorithm, "act", "policy"), (algorithm, "prepare", "update"),
            (algorithm, "update", "update"),
        ):  # fmt: skip
            counted(owner, method, part)
        began = time.process_time()
        config = TrainerConfig(updates=updates, steps=preset.steps)
        Trainer(world, algorithm, config, Silent(), lambda: None).run()
        whole = time.process_time() - began
    parts = {**spent, "rest": whole - sum(spent.values())}
    emit("  " + ", ".join(f"{name} {seconds / whole:.1%}" for name, seconds in parts.items()))


class _Loop:
    """Hosts one after the other, as one would write one host."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring, self._data = wiring, digits()
        self._hosts = [self._host() for _ in wiring.alpha]
        self._adams = [
            torch.optim.Adam(
                [weight for network in host for weight in network], lr=LEARNING_RATE, betas=BETAS
            )
            for host in self._hosts
        ]

    @staticmethod
    def _host() -> list[list[Tensor]]:
        shapes = [(64, 3), (3,), (3, 10), (10,)], *[[(64, 12), (12,), (12, 10), (10,)]] * SLOTS
        return [[torch.randn(*shape).mul_(0.1).requires_grad_() for shape in network] for network in shapes]

    def timed(self, steps: int) -> float:
        """Host-steps a CPU second."""
        began = time.process_time()
        for _ in range(steps):
            for number in range(len(self._hosts)):
                for _ in range(BATCHES_PER_STEP):
                    self._train(number)
                with torch.no_grad():
                    self._validate(number)
        return steps * len(self._hosts) / (time.process_time() - began)

    def _outputs(self, number: int, x: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        host, *branches = (
            functional.relu(x @ first + bias) @ last + last_bias
            for first, bias, last, last_bias in self._hosts[number]
        )
        terms, total = [], host
        for slot, z in enumerate(branches):
            kind, alone = self._wiring.algorithm[number, slot], bool(self._wiring.isolated[number, slot])
            beside = host.detach() if alone else host
            terms.append(z if kind == 0 else beside * z if kind == 1 else z * z.sigmoid())
            if not alone:
                total = total + self._wiring.alpha[number, slot] * terms[-1]
        return total, terms, host

    def _train(self, number: int) -> None:
        index = torch.randint(len(self._data.train_y), (BATCH_SIZE,))
        x, y = self._data.train_x[index], self._data.train_y[index]
        total, terms, _ = self._outputs(number, x)
        loss = functional.cross_entropy(total, y)
        for slot, term in enumerate(terms):
            if self._wiring.isolated[number, slot]:
                loss = loss + functional.cross_entropy(total.detach() + term, y)
        self._adams[number].zero_grad()
        loss.backward()
        self._adams[number].step()

    def _validate(self, number: int) -> None:
        y = self._data.valid_y
        total, terms, _ = self._outputs(number, self._data.valid_x)
        (total.argmax(dim=1) == y).float().mean()
        functional.cross_entropy(total, y)
        for slot, term in enumerate(terms):
            change = 1.0 if self._wiring.isolated[number, slot] else -self._wiring.alpha[number, slot]
            ((total + change * term).argmax(dim=1) == y).float().mean()


def _installed() -> str | None:
    """Make JAX's Python where there is none; why there is none afterwards."""
    if PYTHON.exists() and subprocess.run([str(PYTHON), "-c", "import jax"], check=False).returncode == 0:
        return None
    emit(f"installing {', '.join(NEEDED)} into {PYTHON.parents[1]}")
    venv.create(PYTHON.parents[1], with_pip=True, clear=True)
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", *NEEDED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]


if __name__ == "__main__":
    main(sys.argv[1:])
