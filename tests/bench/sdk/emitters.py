"""Ways to emit twelve numbers of an update, one class of calls a library.

Loaded by `worker.py` alone, in whatever Python has the library: imports the standard library, and each
library where it is used. A call is written out as a trainer writes it, names and all.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAMES = (
    "kl_divergence", "entropy", "clip_fraction", "explained_variance", "grad_norm", "grad_clipped",
    "learning_rate", "policy_loss", "value_loss", "update_time", "kl_joint", "kl_max",
)  # fmt: skip
ENVS = 192
MANY_ENVS = 4096
COLUMNS = 8
EXPORT_MS = 1000
WARM = 5
"""How often each of our calls is made before anything is measured, numbered from 0."""
Call = Callable[[int], object]


@dataclass(frozen=True)
class Emitter:
    """One library, ready to be called."""

    version: str
    calls: dict[str, Call]
    """By name; each takes the number of the update."""
    close: Callable[[], None] = lambda: None
    dropped: Callable[[], dict[str, int]] = dict
    """Records that did not go the way of the others, by reason, so far."""
    pid: Callable[[], int | None] = lambda: None
    """The process that sends."""
    flush: Callable[[float], bool] = field(default=lambda _: True)
    """Wait so many seconds for the collector to have everything; whether it has."""
    fill: Callable[[float], str] = field(default=lambda _: "")
    """Use up what may wait for the collector, within seconds; what came of it."""


def literal(line: str, scope: dict[str, object]) -> Call:
    """A function that makes calls as a trainer writes them."""
    made: dict[str, Any] = dict(scope)
    exec(f"def one(i):\n    {line}", made)  # noqa: S102 the text is this file's own
    one: Call = made["one"]
    return one


def _numbers() -> str:
    return ", ".join(f"{name}=0.{i}" for i, name in enumerate(NAMES, 1))


def overwatch(endpoint: str, folder: str) -> Emitter:
    """`run.update` and `run.envs` of a run as it starts by default."""
    import numpy as np

    from overwatch import sdk

    run = sdk.start(endpoint=endpoint, run_id="bench", task="bench", n_envs=ENVS)
    few = np.random.default_rng(0).random(ENVS)
    sets = [dict.fromkeys((*NAMES[place:], *map("other_{}".format, range(place))), 0.1) for place in range(7)]
    scope: dict[str, object] = {"run": run, "few": few, "sets": sets, "report": run.updater(*NAMES)}
    columns = {}
    for dtype in ("f4", "f8"):
        many = {
            f"{dtype}_{i}": np.random.default_rng(i).random(MANY_ENVS).astype(dtype) for i in range(COLUMNS)
        }
        scope |= many
        columns[dtype] = ", ".join(f"c{i}={name}" for i, name in enumerate(many))
    update = f"run.update(update=i, {_numbers()})"
    lines = {
        "12": update,
        "12 by place": f"report({', '.join(f'0.{i}' for i in range(1, len(NAMES) + 1))}, update=i)",
        "12 of 7 sets": "run.update(update=i, **sets[i % 7])",
        "192": "run.envs(step=i, reward=few)",
        "12+192": f"{update}; run.envs(step=i, reward=few)",
        "8x4096 f4": f"run.envs(step=i, {columns['f4']})",
        "8x4096 f8": f"run.envs(step=i, {columns['f8']})",
        "fact": "run.log('a line', subsystem='burst', index=i)",
        "12+192+fact": f"{update}; run.envs(step=i, reward=few); run.log('a line', loss=0.5)",
    }
    calls = {name: literal(line, scope) for name, line in lines.items()}
    for call in calls.values():
        for i in range(WARM):
            call(i)

    def dropped() -> dict[str, int]:
        link = run._channel.link
        if link is None:
            return {}
        folded = {"folded": link.rings.numbers.folded} if link.rings.numbers.folded else {}
        return folded | link.rings.account().dropped

    def fill(seconds: float) -> str:
        return _fill(run, Path(folder) / "spool", seconds)

    return Emitter(
        version("esper-overwatch"),
        calls,
        lambda: void(run.close(2.0)),
        dropped,
        lambda: run.exporter_pid,
        run.flush,
        fill,
    )


def _fill(run: Any, spool: Path, seconds: float) -> str:
    """Emit facts with long texts until the spool's files hold all that they may, and a second longer."""
    from overwatch.sdk.exporter.spool import SpoolLimits

    line = "".join(chr(32 + i * 7 % 90) for i in range(60 << 10))
    deadline, budget = time.monotonic() + seconds, SpoolLimits().budget_bytes
    while (held := sum(one.stat().st_size for one in spool.rglob("*") if one.is_file())) < 0.98 * budget:
        if time.monotonic() > deadline:
            return f"{held >> 20} MiB of {budget >> 20} MiB in {seconds:.0f} s"
        for _ in range(10):
            run.env_crashed(env_id=0, error="RuntimeError: a long one", traceback=line)
        time.sleep(0.02)
    time.sleep(1.0)
    return f"full, {held >> 20} MiB"


def void(_: object) -> None:
    """Take a result that nobody needs."""


def disabled(endpoint: str, folder: str) -> Emitter:
    """The same calls where telemetry is switched off."""
    os.environ["OTEL_SDK_DISABLED"] = "true"
    return overwatch(endpoint, folder)


def tensors(endpoint: str, folder: str) -> Emitter:
    """Twelve numbers that are tensors: they are stacked on the device, then copied."""
    import torch

    from overwatch import sdk

    device = "cuda" if torch.cuda.is_available() else "cpu"
    run = sdk.start(endpoint=endpoint, run_id="bench-tensors", task="bench")
    scope: dict[str, object] = {"run": run, "torch": torch}
    scope["values"] = torch.rand(len(NAMES), device=device).unbind()
    numbers = ", ".join(f"{name}=values[{i}]" for i, name in enumerate(NAMES))
    calls = {
        "12 tensors": literal(f"run.update(update=i, {numbers})", scope),
        "stack": literal("torch.stack(values)", scope),
    }
    for i in range(20):
        calls["12 tensors"](i)
    return Emitter(f"{torch.__version__} ({device})", calls, lambda: void(run.close(2.0)))


def opentelemetry(endpoint: str, folder: str) -> Emitter:
    """Gauges of the SDK, exported every second over OTLP/HTTP; an env is an attribute."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics")
    provider = MeterProvider(
        metric_readers=[PeriodicExportingMetricReader(exporter, export_interval_millis=EXPORT_MS)],
        shutdown_on_exit=False,
    )
    meter = provider.get_meter("bench")
    scope: dict[str, object] = {name: meter.create_gauge(name) for name in NAMES}
    scope["reward"] = meter.create_gauge("reward")
    scope["envs"] = [({"env": i}, 0.1 * i) for i in range(ENVS)]
    scope["two"] = {"run": "bench", "rank": 0}
    plain = "; ".join(f"{name}.set(0.{i})" for i, name in enumerate(NAMES, 1))
    two = "; ".join(f"{name}.set(0.{i}, two)" for i, name in enumerate(NAMES, 1))
    lines = {
        "12": plain,
        "12, 2 attributes": two,
        "12+192": f"{plain}\n    for env, value in envs: reward.set(value, env)",
    }
    calls = {name: literal(line, scope) for name, line in lines.items()}
    return Emitter(version("opentelemetry-sdk"), calls, lambda: provider.shutdown(2000))


def wandb(endpoint: str, folder: str) -> Emitter:
    """`run.log` without a server."""
    import wandb as library

    run = library.init(
        mode="offline", dir=folder, project="bench", settings=library.Settings(silent=True, console="off")
    )
    numbers = ", ".join(f"'{name}': 0.{i}" for i, name in enumerate(NAMES, 1))
    return Emitter(library.__version__, {"12": literal(f"run.log({{{numbers}}})", {"run": run})}, run.finish)


def tensorboard(endpoint: str, folder: str) -> Emitter:
    """`add_scalar`, once a number."""
    try:
        from torch.utils.tensorboard import SummaryWriter

        found = f"tensorboard {version('tensorboard')}"
    except ImportError:
        from tensorboardX import SummaryWriter

        found = f"tensorboardX {version('tensorboardX')}"
    writer = SummaryWriter(folder)
    line = "; ".join(f"writer.add_scalar('{name}', 0.{i}, i)" for i, name in enumerate(NAMES, 1))
    return Emitter(found, {"12": literal(line, {"writer": writer})}, writer.close)


EMITTERS: dict[str, Callable[[str, str], Emitter]] = {
    "overwatch": overwatch,
    "disabled": disabled,
    "tensors": tensors,
    "opentelemetry": opentelemetry,
    "wandb": wandb,
    "tensorboard": tensorboard,
}
