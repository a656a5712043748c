"""Commands of training: train a policy, evaluate, verify and show one.

Rules: torch is loaded inside the commands, after signals are taken.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import click

from overwatch_rl.algorithms import OWN_SETTINGS
from overwatch_rl.cli.common import (
    PLACE,
    Number,
    alive_option,
    config_option,
    signals,
    stopping,
    usage_errors,
)
from overwatch_rl.web.authorisation import read_token

if TYPE_CHECKING:
    from overwatch_rl.algorithms.ppo import PPO
    from overwatch_rl.artifacts.versions import Version
    from overwatch_rl.config import TrainFlags
    from overwatch_rl.modes import Modes
    from overwatch_rl.trained import TrainedPolicy
    from overwatch_rl.worlds.goodhart.config import GoodhartConfig

Command = TypeVar("Command", bound=Callable[..., object])
HERE: Final = "out://"
"""What `--resume` without a place stands for: the folder of `--out`."""
EVALUATION_SEED: Final = 1_000_003
"""Far from the seeds of training: episodes that no policy was trained on."""


_COLUMNS: Final = (("metric", ".3f"), ("fossils", ".2f"))
"""Beside the return, in worlds that have them."""


def _own_settings(command: Command) -> Command:
    """An option for the settings of each algorithm, all of them in the parameter `own`."""

    def gathered(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> None:
        context.params.setdefault("own", {})[option.name] = words

    for name, about in reversed(OWN_SETTINGS.items()):
        option = click.option(
            f"--{name}",
            multiple=True,
            metavar="NAME=VALUE",
            help=about,
            expose_value=False,
            callback=gathered,
        )
        command = option(command)
    return command


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_RL"})
@config_option("OVERWATCH_RL")
@click.option("--world", default="morphogenesis", show_default=True, help="Which world to train in.")
@click.option(
    "--algorithm", default="ppo", show_default=True, help="What learns: ppo, or dqn in worlds of one choice."
)
@click.option("--envs", type=int, help="Environments stepped together; the world's preset without.")
@click.option("--slots", type=int, help="Slots of each environment, in worlds that have slots.")
@click.option("--mode", help="What is seen and paid for, in worlds that have modes.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the world; may be repeated."
)
@_own_settings
@click.option("--updates", type=int, help="Updates to do; 30 unless --seconds is given.")
@click.option("--seconds", type=Number(0), help="End after this long, at the next step.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same numbers.")
@click.option("--lr", type=Number(), help="Learning rate; the world's preset without.")
@click.option("--epochs", type=int, help="Passes over each batch; the world's preset without.")
@click.option("--minibatches", type=int, help="Optimiser steps a pass; the world's preset without.")
@click.option("--steps", type=int, help="Steps of every env an update; the world's preset without.")
@click.option("--network", help="The policy's network; the world's preset without.")
@click.option("--device", help="auto, cpu, cuda or cuda:1; the world's preset without.")
@click.option("--target-kl", type=Number(), help="Stop an update early above 1.5 times this; off without.")
@click.option("--gamma", type=Number(), help="Discount of one step; the world's preset without.")
@click.option("--anneal-updates", type=int, help="The learning rate falls to 0 over so many; kept without.")
@click.option(
    "--normalise-observations/--no-normalise-observations", default=None,
    help="See vectors of floats as deviations from their running mean; the world's preset without.",
)  # fmt: skip
@click.option(
    "--plan", type=click.Choice(("auto", "plain")), default="auto", show_default=True,
    help="auto measures precision, layout and chunks before the first update of a network of convolutions.",
)  # fmt: skip
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of torch's arithmetic.")
@click.option("--run-id", help="The run's id; made up without.")
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without.")
@click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower.")
@click.option("--view", is_flag=True, help="Log what the first environment sees, in worlds that can show it.")
@click.option("--dashboard", is_flag=True, help="Show modes side by side; with --mode all, or one of them.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the run's numbers and checkpoints.",
)  # fmt: skip
@click.option(
    "--tensorboard", is_flag=False, flag_value="", metavar="[DIR]",
    help="Write the numbers as event files of TensorBoard too, without DIR into --out's folder tensorboard.",
)  # fmt: skip
@click.option(
    "--resume", type=PLACE, is_flag=False, flag_value=HERE, metavar="[PLACE]",
    help="Go on from the newest checkpoint of the run in a folder or at a URL, or from that one; --updates "
    "counts from the beginning of the run. Without PLACE: from --out's newest, or begin where it has none, "
    "as a job that is started again with the same words does.",
)  # fmt: skip
@click.option(
    "--checkpoint-every",
    type=int,
    default=10,
    show_default=True,
    help="Updates between checkpoints in --out.",
)
@click.option(
    "--keep", type=int, default=3, show_default=True, help="Newest checkpoints kept, beside the best."
)
@click.option(
    "--log", type=click.Choice(("auto", "text", "json")), default="auto", show_default=True,
    help="Lines for a person, or JSON for a program; auto is text on a terminal.",
)  # fmt: skip
@alive_option
@click.pass_context
def train(
    context: click.Context,
    *,
    dashboard: bool,
    resume: Path | str | None,
    checkpoint_every: int,
    keep: int,
    log: str,
    **flags: Unpack["TrainFlags"],
) -> None:
    """Train a policy with PPO or DQN and report to the tower.

    `--mode all` trains every mode of the world at once, each in a process and a run of its own.
    """
    out = flags["out"]
    if resume == HERE and out is None:
        raise click.UsageError("--resume without a place looks into --out; give --out, or a place")
    if dashboard or flags["mode"] == "all":
        if resume is not None:
            raise click.UsageError("--resume goes on with one run; name its mode, without --dashboard")
        keeping_words = ["--checkpoint-every", str(checkpoint_every), "--keep", str(keep), "--log", "json"]
        context.exit(_side_by_side(flags, keeping_words, is_drawn=dashboard))
    typed = frozenset(
        name
        for name in flags
        if context.get_parameter_source(name) not in (None, click.core.ParameterSource.DEFAULT)
    )
    stop = stopping(flags["seconds"], flags["alive"])
    with signals(stop):
        with usage_errors():
            from overwatch_rl.assembly import Keeping, assemble
            from overwatch_rl.checkpoints.reading import candidates
            from overwatch_rl.config import of_rank
            from overwatch_rl.resume import settings_of
            from overwatch_rl.training.distributed import joined, place

            here = place()
            if resume == HERE and out is not None:
                resume = out if candidates(out) else None
            settings, checkpoint = settings_of(flags, typed, resume)
            settings = of_rank(settings, here)
            keeping = Keeping(every=checkpoint_every, keep=keep, run_id=flags["run_id"], log=log)
        with joined(here, settings.world.device) as ranks:
            with usage_errors():
                flight = assemble(settings, keeping, checkpoint, stop.outcome, here=here, ranks=ranks)
            flight.fly()
        tower = flight.tower
        if tower is not None and tower.report is not None and tower.report.dropped:
            click.echo(f"telemetry: not everything was delivered: {tower.report.dropped}", err=True)


def _side_by_side(flags: "TrainFlags", words: list[str], *, is_drawn: bool) -> int:
    """Train one or all modes of the world in processes of their own, given more words; the exit status."""
    with usage_errors():
        from overwatch_rl.config import mode_commands, train_settings
        from overwatch_rl.modes import Modes

        commands = mode_commands(flags)
        for _, own, _ in commands:
            train_settings(own)
        if is_drawn:
            if not sys.stdout.isatty():
                raise ValueError("--dashboard needs a terminal; leave it out")
            from overwatch_rl.dashboard import Dashboard
    with Modes([(name, [*own, *words]) for name, _, own in commands]) as modes:
        if is_drawn:
            Dashboard(modes).run()
            modes.stop()
            return modes.status()
        status = _follow(modes)
    for mode in modes.modes:
        click.echo(f"{mode.name:14} {mode.outcome or 'failed'}" + (f": {mode.reason}" if mode.reason else ""))
        if mode.process.returncode:
            click.echo("\n".join(mode.errors), err=True)
    return status or modes.status()


def _follow(modes: "Modes") -> int:
    """Print a line an update until all have ended; 130 when that was asked for by Ctrl-C, which ends all."""
    from overwatch_rl.telemetry.screen import line_of

    seen = dict.fromkeys((mode.name for mode in modes.modes), 0)
    status = 0
    while True:
        try:
            is_last = not modes.is_training
            for mode in modes.modes:
                values, _ = modes.snapshot(mode)
                for row in values[seen[mode.name] :]:
                    click.echo(f"{mode.name:14} {line_of(row)}")
                seen[mode.name] = len(values)
            if is_last:
                return status
            time.sleep(0.2)
        except KeyboardInterrupt:
            status = 130
            modes.stop()


@click.command()
@click.argument("folder", required=False, type=PLACE)
@click.option("--world", default="morphogenesis", show_default=True, help="World of the baselines.")
@click.option("--episodes", type=int, default=32, show_default=True, help="Episodes of each policy.")
@click.option("--slots", type=int, help="Slots of each environment; the policy's own, else 3.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which episodes.")
@click.option("--search", is_flag=True, help="Play the best fixed schedule too; it is searched first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--post", "is_posted", is_flag=True,
    help="Record the return beside the checkpoints: the best of the run is chosen by it from then on.",
)  # fmt: skip
@click.option("--orchestrator", metavar="URL", help="Post the return to the run's record there.")
@click.option(
    "--orchestrator-token", "token", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File of its bearer token.",
)  # fmt: skip
@click.option("--run-id", help="The run that it is posted to; the policy's own without.")
def evaluate(
    folder: Path | str | None, *, as_json: bool, is_posted: bool, orchestrator: str | None,
    token: Path | None, run_id: str | None, **episodes: Any,
) -> None:  # fmt: skip
    """Compare the policy in FOLDER with policies that do not learn, on the same episodes."""
    with usage_errors():
        if (is_posted or orchestrator) and (folder is None or episodes["slots"] is not None):
            flag = "--post" if is_posted else "--orchestrator"
            raise ValueError(
                f"{flag} records a return of a policy in its own world; name it, without --slots"
            )
        rows, policy = _evaluate(folder, episodes)
        if folder is not None and policy is not None:
            mean, count = rows["policy"].get("return", math.nan), episodes["episodes"]
            if math.isnan(mean) and (is_posted or orchestrator):
                raise ValueError("the return of the policy is not known, so there is nothing to post")
            if is_posted:
                _post(folder, policy.version, mean, count)
            if orchestrator is not None:
                target = (orchestrator, run_id or policy.run_id, token)
                _post_to_orchestrator(target, policy.version, mean, count)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(12, *map(len, rows))
    columns = [(name, form) for name, form in _COLUMNS if any(name in row for row in rows.values())]
    click.echo("  ".join([f"{'policy':{width}}", f"{'return':>17}", *(f"{name:>7}" for name, _ in columns)]))
    for name, row in rows.items():
        spread = f"{row['return']:+.3f} ± {row['standard_error']:.3f}" if "return" in row else "-"
        cells = (f"{row[column]:{form}}" if column in row else "-" for column, form in columns)
        click.echo("  ".join([f"{name:{width}}", f"{spread:>17}", *(f"{cell:>7}" for cell in cells)]))


def _evaluate(
    folder: Path | str | None, requested: dict[str, Any]
) -> "tuple[dict[str, dict[str, float]], TrainedPolicy | None]":
    import torch

    from overwatch_rl.config import world_settings
    from overwatch_rl.trained import load_policy
    from overwatch_rl.worlds import make
    from overwatch_rl.worlds.base import WorldConfig
    from overwatch_rl.worlds.evaluation import baselines, best_schedule, play

    episodes, seed, world = requested["episodes"], requested["seed"], requested["world"]
    if episodes < 2:
        raise ValueError(f"episodes is {episodes}; use 2 or more, a mean needs them")
    torch.set_num_threads(1)
    policy = None if folder is None else load_policy(folder)
    own = world_settings(requested["slots"], None, ())
    if policy is not None:
        world, own = policy.world, {**policy.settings, **own}
    made = make(world, WorldConfig(num_envs=episodes), own)
    acts = dict(baselines(made.spec.action, torch.Generator().manual_seed(seed)))
    if requested["search"] and made.spec.seeds is not None:
        # In other episodes than those that are played below.
        name, act = best_schedule(made, seed + 1)
        acts[f"best: {name}"] = act
    if policy is not None:
        acts = {"policy": policy.player(made.spec), **acts}
    rows: dict[str, dict[str, float]] = {}
    for name, act in acts.items():
        played = play(made, act, seed)
        rows[name] = {}
        if unknown := episodes - len(played.known):
            click.echo(
                f"{name}: {unknown} of {episodes} episodes have a reward that is no finite number, "
                "so their return is not known; mend the world's rewards",
                err=True,
            )
        if unknown < episodes - 1:
            rows[name] = {"return": played.mean, "standard_error": played.standard_error}
        if played.has_metric and bool(played.metric.isfinite().all()):
            rows[name]["metric"] = float(played.metric.mean())
        if made.spec.seeds is not None:
            rows[name]["fossils"] = float(played.fossils.double().mean())
    return rows, policy


def _post(place: Path | str, version: "Version", mean_return: float, episodes: int) -> None:
    from overwatch_rl.checkpoints.listing import post_evaluation
    from overwatch_rl.checkpoints.manifest import Evaluation

    found = Evaluation(
        lineage=version.lineage, number=version.number, mean_return=mean_return, episodes=episodes
    )
    try:
        where = post_evaluation(place, found)
    except OSError as error:
        raise ValueError(f"the evaluation of {version} cannot be recorded: {error}") from error
    click.echo(f"recorded {where}", err=True)


def _post_to_orchestrator(
    target: tuple[str, str, Path | None], version: "Version", mean_return: float, episodes: int
) -> None:
    """Post to `target`: its URL, the run and the file of the token."""
    from overwatch_rl.orchestrator.client import OrchestratorError, called
    from overwatch_rl.orchestrator.wire import EvaluationRequest

    url, run_id, file = target
    token = None if file is None else read_token(file)
    found = EvaluationRequest(version=str(version), mean_return=mean_return, episodes=episodes)
    try:
        called(url, run_id, token, lambda client: client.post_evaluation(found))
    except OrchestratorError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"posted to run {run_id} at {url}", err=True)


@click.command()
@click.argument("folder", type=PLACE)
@click.option(
    "--steps", type=click.IntRange(1), default=500, show_default=True, help="Steps of the survival."
)
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which fields.")
def verify(folder: Path | str, steps: int, seed: int) -> None:
    """Check the goodhart policy in FOLDER: does it prefer food, does it live; 1 where it does not."""
    with usage_errors():
        from overwatch_rl.trained import player
        from overwatch_rl.worlds.goodhart.verification import lines, verify

        policy, config = _kept_goodhart(folder)
        found = verify(player(policy), config, seed=seed, steps=steps)
    click.echo("\n".join(lines(found)))
    sys.exit(0 if found.passed else 1)


def _kept_goodhart(folder: Path | str) -> "tuple[PPO, GoodhartConfig]":
    """The newest policy in `folder` and its world; raises `ValueError` when that is another world."""
    from overwatch_rl.trained import load_policy
    from overwatch_rl.worlds import make
    from overwatch_rl.worlds.base import WorldConfig
    from overwatch_rl.worlds.goodhart.config import goodhart_config

    policy = load_policy(folder)
    kind, _, part = policy.world.partition(":")
    if kind != "goodhart":
        raise ValueError(f"{folder} holds a policy of {policy.world}; name one of goodhart")
    spec = make(policy.world, WorldConfig(num_envs=1), policy.settings).spec
    from overwatch_rl.algorithms.ppo import PPO

    made = policy.policy(spec)
    if not isinstance(made, PPO):
        raise ValueError(f"{folder} holds a policy of {policy.algorithm}; name one of ppo")  # noqa: TRY004 of what was kept
    return made, goodhart_config(part, dict(policy.settings))


@click.command()
@click.argument("folder", type=PLACE)
@click.option("--steps", type=click.IntRange(1), default=200, show_default=True, help="Steps to show.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which field.")
@click.option("--rate", type=Number(0.1), default=8.0, show_default=True, help="Steps a second.")
@click.option("--gif", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture instead.")
def play(folder: Path | str, steps: int, seed: int, rate: float, gif: Path | None) -> None:
    """Show what an agent of the goodhart policy in FOLDER sees and does."""
    with usage_errors():
        from overwatch_rl.trained import player
        from overwatch_rl.worlds.goodhart.picture import frame, write_gif
        from overwatch_rl.worlds.goodhart.watching import lines, watch

        policy, config = _kept_goodhart(folder)
        moments = watch(player(policy), config, seed=seed, steps=steps)
        if gif is not None:
            write_gif(gif, [frame(moment.view) for moment in moments])
            click.echo(f"wrote {gif}")
            return
        for moment in moments:
            if sys.stdout.isatty():
                click.clear()
                time.sleep(1.0 / rate)
            click.echo("\n".join(lines(moment, config)))


@click.command()
@click.argument("folder", type=PLACE)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Picture to write, as PNG."
)
@click.option(
    "--of", type=click.Choice(("action", "value")), default="action", show_default=True,
    help="Of the chosen action's log-probability, or of the value.",
)  # fmt: skip
@click.option(
    "--states", type=click.IntRange(1, 4096), default=64, show_default=True, help="States of the mean."
)
@click.option("--steps", type=click.IntRange(0), default=20, show_default=True, help="Moves before them.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which fields.")
def saliency(folder: Path | str, *, out: Path, of: str, states: int, steps: int, seed: int) -> None:
    """Draw which cells the goodhart policy in FOLDER decides by.

    From left to right: what an agent sees, the weight of each cell there, the mean weight over all states.
    """
    with usage_errors():
        from overwatch_rl.algorithms.saliency import saliency as weigh
        from overwatch_rl.trained import player
        from overwatch_rl.worlds.goodhart.picture import beside, frame, heat, write_picture
        from overwatch_rl.worlds.goodhart.watching import states_of

        policy, config = _kept_goodhart(folder)
        seen = states_of(player(policy), config, states=states, steps=steps, seed=seed)
        weights = weigh(policy, seen, of)
        mean = weights.mean(dim=0)
        write_picture(out, beside([frame(seen.features[0]), heat(weights[0]), heat(mean)]))
    row, column = (place + 1 for place in divmod(int(mean.argmax()), config.view))
    middle = config.view // 2 + 1
    click.echo(
        f"wrote {out}; largest mean weight: row {row}, column {column} (agent: row {middle}, column {middle})"
    )


@click.command("sync-points")
def sync_points() -> None:
    """List where the training thread reads from the device between the first and the last update."""
    with usage_errors():
        from overwatch_rl.sync_points import SYNC_POINTS

    for name, point in SYNC_POINTS.items():
        click.echo(f"{name:18} {point.where:26} {point.how_often}\n{'':18} {point.why}")
