"""How a trainer speaks: `run = overwatch.sdk.start(...)`, then `run.update(...)`, and that is all.

Everything is handed to an exporter process; no call raises into training and none waits. Importing this
loads the standard library, msgspec, the catalogue and the events; nothing else.
"""

from collections.abc import Mapping, Sequence

from overwatch.events import MetricInfo
from overwatch.sdk.launch import Options, begin
from overwatch.sdk.lifetime import Report
from overwatch.sdk.recompiles import Recompiles
from overwatch.sdk.run import Run
from overwatch.sdk.words import WordTables

__all__ = ["Recompiles", "Report", "Run", "WordTables", "start"]


def start(
    *,
    run_id: str | None = None,
    task: str | None = None,
    algo: str | None = None,
    n_envs: int | None = None,
    config: object | None = None,
    reward_mode: str | None = None,
    devices: Sequence[str] | None = None,
    slots: Sequence[str] | None = None,
    embargo: int | None = None,
    blueprints: Mapping[str, str] | None = None,
    words: WordTables | None = None,
    metric: MetricInfo | None = None,
    preset: str | None = None,
    updates: int | None = None,
    batches: int | None = None,
    modes: Mapping[str, object] | None = None,
    endpoint: str | None = None,
    role: str = "trainer",
    rank: int | None = None,
    group: str | None = None,
    env_offset: int | None = None,
    sample: bool = True,
    quiet: bool = False,
) -> Run:
    """Start telemetry for this process; every argument is explained at `overwatch.sdk.launch.Options`.

    An argument that cannot be used is left out with a warning that names it; nothing is raised.
    """
    options = Options(
        run_id=run_id, task=task, algo=algo, n_envs=n_envs, config=config, reward_mode=reward_mode,
        devices=devices, slots=slots, embargo=embargo, blueprints=blueprints, words=words, metric=metric,
        preset=preset, updates=updates, batches=batches, modes=modes, endpoint=endpoint, role=role, rank=rank,
        group=group, env_offset=env_offset, sample=sample, quiet=quiet,
    )  # fmt: skip
    return begin(options)
