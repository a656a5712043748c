"""The `overwatch-rl` command: train a policy, evaluate one.

Owns signals, exit codes and what is printed. A first SIGINT or SIGTERM ends the run after the current step;
a second one is the interpreter's own. Torch is loaded inside the commands, after signals are taken.
"""

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Unpack

import click

from overwatch.extras import RL

if TYPE_CHECKING:
    from overwatch_rl.algorithms.batch import Batch
    from overwatch_rl.algorithms.ranks import Ranks
    from overwatch_rl.config import TrainFlags, TrainSettings
    from overwatch_rl.telemetry.tower import Tower
    from overwatch_rl.training.distributed import Place
    from overwatch_rl.training.trainer import Trainer
    from overwatch_rl.types import Reporter

EVALUATION_SEED: Final = 1_000_003
"""Far from the seeds of training: episodes that no policy was trained on."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether and why to end: told by a signal, or out of time."""

    def __init__(self, seconds: float | None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._told = False

    def tell(self) -> None:
        """End after the current step."""
        self._told = True

    def outcome(self) -> str | None:
        """The outcome to end with now, or `None` to go on."""
        if self._told:
            return "interrupted"
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return "completed" if late else None


@contextlib.contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Turn the first signal into a stop and give the handlers back for the second."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def told(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 the signature of a handler
        stop.tell()
        give_back()

    for number in SIGNALS:
        signal.signal(number, told)
    try:
        yield
    finally:
        give_back()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Train policies, and compare them."""


@main.command()
@click.option("--world", default="morphogenesis", show_default=True, help="Which world to train in.")
@click.option("--envs", type=int, help="Environments stepped together; the world's preset without.")
@click.option("--slots", type=int, help="Slots of each environment, in worlds that have slots.")
@click.option("--mode", help="What is seen and paid for, in worlds that have modes.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the world; may be repeated."
)
@click.option("--updates", type=int, help="Updates to do; 30 unless --seconds is given.")
@click.option("--seconds", type=float, help="End after this long, at the next step.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same numbers.")
@click.option("--lr", type=float, help="Learning rate; the world's preset without.")
@click.option("--epochs", type=int, help="Passes over each batch; the world's preset without.")
@click.option("--minibatches", type=int, help="Optimiser steps a pass; the world's preset without.")
@click.option("--steps", type=int, help="Steps of every env an update; the world's preset without.")
@click.option("--network", help="The policy's network; the world's preset without.")
@click.option(
    "--device", default="cpu", show_default=True, help="Where world and policy are: cpu, cuda, cuda:1."
)
@click.option("--target-kl", type=float, help="Stop an update early above 1.5 times this; off without.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of torch's arithmetic.")
@click.option("--run-id", help="The run's id; made up without.")
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without.")
@click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False),
    help="Folder for updates.jsonl, summary.json and the policy.",
)  # fmt: skip
def train(**flags: Unpack["TrainFlags"]) -> None:
    """Train a policy with PPO and report to the tower."""
    stop = Stop(flags["seconds"])
    with _signals(stop):
        with _usage_errors():
            from overwatch_rl.config import of_rank, train_settings
            from overwatch_rl.training.distributed import joined, place

            here = place()
            settings = of_rank(train_settings(flags), here)
        with joined(here, settings.world.device) as ranks:
            with _usage_errors():
                trainer, reporter, tower = _assemble(settings, stop, here, ranks)
            _fly(trainer, reporter, tower, settings)
    if tower is not None and tower.report is not None and not tower.report.delivered:
        click.echo(
            f"telemetry: not everything was delivered: {tower.report.dropped or 'telemetry is off'}", err=True
        )


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    """A `ValueError` of a config becomes a usage error; a missing torch says what to install."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in RL.modules:
            raise
        raise click.ClickException(RL.need) from error


def _assemble(
    settings: "TrainSettings", stop: Stop, here: "Place", ranks: "Ranks"
) -> "tuple[Trainer[Batch], Reporter, Tower | None]":
    import torch

    from overwatch_rl.algorithms.ppo import PPO
    from overwatch_rl.telemetry.files import Files
    from overwatch_rl.telemetry.reporter import Fanout
    from overwatch_rl.telemetry.screen import Screen
    from overwatch_rl.telemetry.tower import start_tower
    from overwatch_rl.training.distributed import together
    from overwatch_rl.training.trainer import Trainer
    from overwatch_rl.worlds import make

    torch.set_num_threads(settings.threads)
    world = make(settings.world_name, settings.world, settings.world_settings)
    algorithm = PPO(world.spec, settings.ppo, seed=settings.seed, device=settings.world.device, ranks=ranks)
    started: list[Reporter] = []
    tower = None
    try:
        if settings.out is not None:
            started.append(Files(settings.out))
        if settings.tower is not None:
            tower = start_tower(settings.tower, world.spec, settings.world.num_envs, settings.described)
            started.append(tower)
        if here.is_first:
            if tower is not None:
                click.echo(f"run {tower.run_id}")
            started.append(Screen(settings.trainer.updates))
        reporter = Fanout(started)
        asked = together(here, stop.outcome, settings.trainer.steps)
        return Trainer(world, algorithm, settings.trainer, reporter, asked), reporter, tower
    except BaseException as error:
        Fanout(started).close(outcome="failed", reason=f"{type(error).__name__}: {error}")
        raise


def _fly(
    trainer: "Trainer[Batch]", reporter: "Reporter", tower: "Tower | None", settings: "TrainSettings"
) -> None:
    """Train; whatever happens, the run is closed with its outcome, and the policy kept when there is one."""
    from overwatch_rl.checkpoints import Manifest, save

    outcome, reason = "failed", None
    try:
        outcome = trainer.run()
        if settings.out is not None:
            began = time.perf_counter()
            manifest = Manifest(
                world=settings.world_name,
                network=settings.ppo.network,
                updates=trainer.updates_done,
                settings=dict(settings.world_settings),
                popart=settings.ppo.popart,
            )
            weights = save(settings.out, trainer.acting(), manifest)
            if tower is not None:
                tower.saved(weights, trainer.updates_done, time.perf_counter() - began)
    except BaseException as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        reporter.close(outcome=outcome, reason=reason)


@main.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--world", default="morphogenesis", show_default=True, help="World of the baselines.")
@click.option("--episodes", type=int, default=32, show_default=True, help="Episodes of each policy.")
@click.option("--slots", type=int, help="Slots of each environment; the policy's own, else 3.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which episodes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def evaluate(
    folder: Path | None, world: str, episodes: int, slots: int | None, seed: int, *, as_json: bool
) -> None:
    """Compare the policy in FOLDER with policies that do not learn, on the same episodes."""
    with _usage_errors():
        rows = _evaluate(folder, world, episodes, slots, seed)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    click.echo(f"{'policy':12}  {'return':>17}  {'metric':>6}  {'fossils':>7}")
    for name, row in rows.items():
        spread = f"{row['return']:+.3f} ± {row['standard_error']:.3f}"
        click.echo(f"{name:12}  {spread:>17}  {row['metric']:6.3f}  {row['fossils']:7.2f}")


def _evaluate(
    folder: Path | None, world: str, episodes: int, slots: int | None, seed: int
) -> dict[str, dict[str, float]]:
    import torch

    from overwatch_rl.config import world_settings
    from overwatch_rl.trained import load_policy
    from overwatch_rl.worlds import make
    from overwatch_rl.worlds.base import WorldConfig
    from overwatch_rl.worlds.evaluation import play
    from overwatch_rl.worlds.schedules import baselines

    if episodes < 2:
        raise ValueError(f"episodes is {episodes}; use 2 or more, a mean needs them")
    torch.set_num_threads(1)
    policy = None if folder is None else load_policy(folder)
    own = world_settings(slots, None, ())
    if policy is not None:
        world, own = policy.manifest.world, policy.manifest.settings | own
    made = make(world, WorldConfig(num_envs=episodes), own)
    acts = dict(baselines(made.spec.action, torch.Generator().manual_seed(seed)))
    if policy is not None:
        acts = {"policy": policy.player(made.spec), **acts}
    rows = {}
    for name, act in acts.items():
        played = play(made, act, seed)
        rows[name] = {
            "return": played.mean,
            "standard_error": played.standard_error,
            "metric": float(played.metric.mean()),
            "fossils": float(played.fossils.double().mean()),
        }
    return rows


if __name__ == "__main__":
    main()
