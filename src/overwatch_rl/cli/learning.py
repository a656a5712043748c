"""Commands of distributed training: the learner, its actors, and all of it on this machine.

Rules: torch is loaded inside the commands, after signals are taken.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from overwatch_rl.cli.common import C, Number, Stop, alive_option, signals, stopping, usage_errors
from overwatch_rl.web.authorisation import read_token

if TYPE_CHECKING:
    from overwatch_rl.learner.config import LearnerConfig
    from overwatch_rl.orchestrator.client import OrchestratorClient
    from overwatch_rl.replay.client import Access
    from overwatch_rl.telemetry.tower import TowerConfig

Flags: TypeAlias = dict[str, Any]
"""What a command was given, by the name of the option."""
_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_TRY_S: Final = 1.0
"""So long the orchestrator is tried, until it is looked whether to stop."""


_COMMON: Final = (
    click.option(
        "--config", type=_FILE, help="YAML, TOML or JSON: what decides the run; the orchestrator's without."
    ),
    click.option(
        "--set", "set", multiple=True, metavar="PATH=VALUE",
        help="A value of the configuration, as batch.steps=64 or ppo.epochs=2; may be repeated.",
    ),
    click.option("--run-id", required=True, help="The run that it is a part of."),
    click.option(
        "--replay", multiple=True, default=("127.0.0.1:8100",), show_default=True, metavar="HOST:PORT",
        help="A replay server, grpcs:// with TLS; repeated for shards, everywhere in the same order. "
        "Or redis://, rediss:// with TLS: Redis Streams of a Redis that syncs before it answers.",
    ),
    click.option(
        "--replay-token", type=_FILE, help="File of the servers' bearer token, or of the password of Redis."
    ),
    click.option("--replay-ca", type=_FILE, help="PEM: the authority of the servers' certificates."),
    click.option("--orchestrator", metavar="URL", help="The orchestrator; without it there are no commands."),
    click.option("--orchestrator-token", type=_FILE, help="File of its bearer token."),
    click.option(
        "--orchestrator-ca", type=_FILE, help="PEM: the authority of its certificate; the system's without."
    ),
    click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without."),
    click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower."),
    click.option("--log", type=click.Choice(("auto", "text", "json")), default="auto", show_default=True),
    alive_option,
)  # fmt: skip


def _common(command: C) -> C:
    for option in reversed(_COMMON):
        command = option(command)
    return command


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_LEARNER"})
@_common
@click.option("--out", type=_FOLDER, required=True, help="The run's folder: numbers, key, locks.")
@click.option(
    "--bucket", metavar="URL", help="s3:// or gs:// place of checkpoints and weights; --out without."
)
@click.option(
    "--weights", metavar="URL",
    help="The redis:// that holds the version key of published weights; the bucket without.",
)  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="Serve the newest weights there: GET /weights/current.")
@click.option("--listen-token", type=_FILE, help="Bearer token of it; needed where others can reach it.")
@click.option(
    "--tls-cert", type=_FILE, help="PEM: the certificate of --listen, then those up to its authority."
)
@click.option("--tls-key", type=_FILE, help="PEM: the private key of the certificate.")
@click.option(
    "--trace", type=click.Path(path_type=Path, dir_okay=False),
    help="File to which it is added which steps each update learned from.",
)  # fmt: skip
@click.option("--table", default="experience", show_default=True, help="Of the replay servers.")
@click.option("--updates", type=click.IntRange(1), help="End after so many.")
@click.option("--env-steps", type=click.IntRange(1), help="End after having trained on so many.")
@click.option("--seconds", type=Number(0), help="End after this long.")
def learner(**flags: Any) -> None:
    """Learn from what actors append to replay, until it is done, commanded or interrupted.

    It goes on from the newest checkpoint of its place.
    """
    stop = stopping(flags["seconds"], flags["alive"])
    with signals(stop), usage_errors():
        from overwatch_rl.learner.governed import OrchestratorSession
        from overwatch_rl.learner.process import LearnerSettings, run
        from overwatch_rl.learner.service import StopConditions
        from overwatch_rl.weights.served import Serving

        config = _config(flags)
        url, listen = flags["orchestrator"], flags["listen"]
        token, ca = _orchestrator_token(flags), flags["orchestrator_ca"]
        governed = None if url is None else OrchestratorSession(url, flags["run_id"], token, config, ca)
        settings = LearnerSettings(
            config=config, run_id=flags["run_id"], out=flags["out"], table=flags["table"],
            servers=flags["replay"], access=_access(flags), bucket=flags["bucket"],
            weights=flags["weights"],
            governed=governed, log=flags["log"], trace=flags["trace"],
            ends=StopConditions(updates=flags["updates"], env_steps=flags["env_steps"]),
            serving=None if listen is None else Serving(
                listen, _text(flags["listen_token"]), flags["tls_cert"], flags["tls_key"]
            ),
            tower=_tower(flags, config, role="learner", updates=flags["updates"]),
        )  # fmt: skip
        run(settings, stop.outcome)


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_ACTOR"})
@_common
@click.option(
    "--weights", required=True, metavar="URL",
    help="Where weights come from: the learner's folder or bucket, redis://, or its http(s):// (--listen).",
)  # fmt: skip
@click.option("--weights-token", type=_FILE, help="Bearer token of the learner's http(s)://.")
@click.option("--weights-ca", type=_FILE, help="PEM: the authority of its certificate, beside the system's.")
@click.option("--artifacts", metavar="URL", help="The bucket, where --weights names Redis.")
@click.option(
    "--weights-key", metavar="TEXT", help="The learner's public key; the orchestrator's record without."
)
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Number of this actor.")
@click.option("--envs", type=click.IntRange(1), help="Environments; as many as a batch has without.")
@click.option("--check-weights", is_flag=True, help="Compare what acts with what the learner signed.")
@click.option(
    "--wait-s", type=Number(0), default=300.0, show_default=True,
    help="How long to wait for the learner to register at the orchestrator.",
)  # fmt: skip
@click.option("--rollouts", type=click.IntRange(1), help="End after so many.")
@click.option("--seconds", type=Number(0), help="End after this long.")
def actor(**flags: Any) -> None:
    """Step a world with a learner's newest weights, and append what it does to replay."""
    stop = stopping(flags["seconds"], flags["alive"])
    with signals(stop), usage_errors():
        from overwatch_rl.actor.process import ActorSettings, run
        from overwatch_rl.weights.channels import Place

        key = flags["weights_key"] or _awaited_key(flags, stop)
        if key is None:
            return
        config = _config(flags)
        count, rank = flags["envs"] or config.batch.envs, flags["rank"]
        settings = ActorSettings(
            config=config, run_id=flags["run_id"], rank=rank, envs=count,
            servers=flags["replay"], access=_access(flags),
            weights=Place(
                url=flags["weights"], run_id=flags["run_id"], artifacts=flags["artifacts"],
                token=_text(flags["weights_token"]), ca=flags["weights_ca"],
            ),
            public_key=key, log=flags["log"],
            rollouts=flags["rollouts"], is_checked=flags["check_weights"],
            tower=_tower(flags, config, role="actor", rank=rank, env_offset=rank * count, is_quiet=True),
        )  # fmt: skip
        with _until_over(flags, stop.outcome) as outcome:
            run(settings, outcome)


@contextlib.contextmanager
def _until_over(flags: Flags, stop: "Callable[[], str | None]") -> "Iterator[Callable[[], str | None]]":
    """Whether to end, for an actor whose orchestrator is known: when its run is over, too."""
    if flags["orchestrator"] is None:
        yield stop
        return
    from overwatch_rl.actor.ending import until_over
    from overwatch_rl.orchestrator.client import Calling, called

    url, token = flags["orchestrator"], _orchestrator_token(flags)
    calling = Calling(ca=flags["orchestrator_ca"], deadline_s=_TRY_S)

    def state() -> str:
        """Return the state of the run; raise as the client does."""
        return called(url, flags["run_id"], token, lambda client: client.run(), calling).state

    with until_over(stop, state, lambda line: click.echo(line, err=True)) as outcome:
        yield outcome


def _config(flags: Flags) -> "LearnerConfig":
    """From the file, the orchestrator and flags."""
    from overwatch_rl.learner.config import learner_config, of_file

    given: list[dict[str, Any]] = []
    if flags["config"] is not None:
        given.append(of_file(flags["config"]))
    elif flags["orchestrator"] is not None:
        given.append(_record(flags).config)
    return learner_config(*given, *_sets(flags["set"]))


def _sets(words: tuple[str, ...]) -> list[dict[str, Any]]:
    """Each `PATH=VALUE` as a table."""
    import yaml

    from overwatch_rl.config import named_values

    given = []
    for path, value in named_values("--set", words).items():
        nested: Any = yaml.safe_load(value)
        for name in reversed(path.split(".")):
            nested = {name: nested}
        given.append(nested)
    return given


def _record(flags: Flags) -> Any:
    """What the orchestrator knows of the run."""
    return _called(flags, lambda client: client.run())


def _called(
    flags: Flags, work: "Callable[[OrchestratorClient], Awaitable[Any]]", deadline_s: float = 60.0
) -> Any:
    """What one piece of work with the run's orchestrator returns; each call is tried again for so long."""
    from overwatch_rl.orchestrator.client import Calling, OrchestratorError, called

    url, calling = str(flags["orchestrator"]), Calling(ca=flags["orchestrator_ca"], deadline_s=deadline_s)
    try:
        return called(url, flags["run_id"], _orchestrator_token(flags), work, calling)
    except OrchestratorError as error:
        raise click.ClickException(str(error)) from error


def _awaited_key(flags: Flags, stop: Stop) -> str | None:
    """That of the learner's weights, once it has registered; `None` where it was asked to stop before."""
    from overwatch_rl.learner.governed import text_of
    from overwatch_rl.orchestrator.client import Patience, registered

    if flags["orchestrator"] is None:
        raise ValueError("--weights-key is missing; give it, or --orchestrator, whose record has it")

    def report(line: str) -> None:
        click.echo(line, err=True)

    patience = Patience(limit_s=flags["wait_s"], stop=stop.outcome, report=report)
    found = _called(flags, lambda client: registered(client, patience), deadline_s=_TRY_S)
    return None if found is None else text_of(found.weights_public_key)


def _access(flags: Flags) -> "Access":
    from overwatch_rl.replay.client import Access

    return Access(token=_text(flags["replay_token"]), ca=flags["replay_ca"], namespace=flags["run_id"])


def _orchestrator_token(flags: Flags) -> str | None:
    return _text(flags["orchestrator_token"])


def _text(file: Path | None) -> str | None:
    return None if file is None else read_token(file)


def _tower(flags: Flags, config: "LearnerConfig", **own: Any) -> "TowerConfig | None":
    from overwatch_rl.telemetry.tower import TowerConfig

    if not flags["telemetry"]:
        return None
    return TowerConfig(
        run_id=flags["run_id"], endpoint=flags["endpoint"], algo=config.algorithm, lane=config.device, **own
    )


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_CLUSTER"})
@click.option("--local", is_flag=True, required=True, help="All processes on this machine.")
@click.option("--world", help="Which world to train in; goodhart:small without.")
@click.option("--algorithm", metavar="NAME", help="What trains: ppo, dqn; ppo without.")
@click.option("--config", type=_FILE, help="YAML, TOML or JSON: what decides the run.")
@click.option("--set", "set", multiple=True, metavar="PATH=VALUE", help="A value of it; may be repeated.")
@click.option(
    "--actors", type=click.IntRange(1), default=2, show_default=True, help="Processes that step it."
)
@click.option("--seed", type=int, help="Same seed, same numbers, where actors take turns with the learner.")
@click.option(
    "--out", type=_FOLDER, default=Path("cluster"), show_default=True,
    help="Folder of the run; one that was used before goes on.",
)  # fmt: skip
@click.option("--updates", type=click.IntRange(1), help="End after so many.")
@click.option("--env-steps", type=click.IntRange(1), help="End after having trained on so many.")
@click.option("--seconds", type=Number(0), help="End so long after the first update.")
@click.option("--redis", metavar="URL", help="Redis that holds the version key; files without.")
@click.option("--replay", metavar="URL", help="As of the learner; a replay server is started without.")
@click.option("--replay-token", type=_FILE, help="As of the learner.")
@click.option("--replay-ca", type=_FILE, help="As of the learner.")
@click.option(
    "--bucket", metavar="URL", help="s3:// or gs:// place of checkpoints and weights; --out without."
)
@click.option("--store", metavar="URL", help="The orchestrator's database; SQLite in --out without.")
@click.option("--run-id", help="The run's id; made up without.")
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False), help="As of the learner.")
@click.option("--collector", is_flag=True, help="Start a collector, which shows the run.")
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without.")
@click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower.")
@click.option("--log", type=click.Choice(("auto", "text", "json")), default="auto", show_default=True)
def cluster(**flags: Any) -> None:
    """Train with a learner, actors, replay and an orchestrator, each a process that is kept running."""
    del flags["local"]
    stop = Stop(flags["seconds"], is_begun=False)
    with signals(stop), usage_errors():
        from overwatch_rl.cluster.process import Cluster
        from overwatch_rl.cluster.supervision import GaveUpError

        settings = _cluster(flags)

        def report(name: str, line: str) -> None:
            if name == "learner" or "it is started again" in line:
                click.echo(line if name == "learner" else f"{name} {line}")

        try:
            made = Cluster(settings, report)
            try:
                for name, where in made.places.items():
                    click.echo(f"{name:24} {where}", err=not settings.is_text)
                made.run(stop.outcome, stop.begin)
            finally:
                made.close()
        except GaveUpError as error:
            raise click.ClickException(str(error)) from error


def _cluster(flags: dict[str, Any]) -> Any:
    from overwatch_rl.cluster.process import ClusterSettings, remembered
    from overwatch_rl.learner.config import check_trace, learner_config, of_file
    from overwatch_rl.telemetry.running import is_text
    from overwatch_rl.telemetry.tower import named

    before = remembered(flags["out"])
    own = {name: flags[name] for name in ("world", "algorithm", "seed") if flags[name] is not None}
    kept = {} if before is None else before.config
    if any(name in kept and own.get(name, kept[name]) != kept[name] for name in ("world", "algorithm")):
        kept = {}
    file = {} if flags["config"] is None else of_file(flags["config"])
    config = learner_config(kept, file, own, *_sets(flags["set"]))
    check_trace(config, flags["trace"])
    run_id = flags["run_id"] or (before.run_id if before else named(None, config.world.partition(":")[0]))
    if flags["collector"] and not flags["telemetry"]:
        raise ValueError("--collector shows what --no-telemetry keeps away; leave one of them out")
    return ClusterSettings(
        config=config, run_id=run_id, out=flags["out"], actors=flags["actors"], updates=flags["updates"],
        env_steps=flags["env_steps"], redis=flags["redis"], bucket=flags["bucket"], store=flags["store"],
        has_collector=flags["collector"], endpoint=flags["endpoint"], is_reporting=flags["telemetry"],
        is_text=is_text(flags["log"]), trace=flags["trace"], replay=flags["replay"],
        replay_token=flags["replay_token"], replay_ca=flags["replay_ca"],
    )  # fmt: skip
