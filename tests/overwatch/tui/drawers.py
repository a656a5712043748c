"""The scenario of the sketches with env 9 opened: its detail, its own feed, the reasons in short."""

from datetime import UTC, datetime

import msgspec

from overwatch.analyse.findings import Reported
from overwatch.catalog import Stage
from overwatch.snapshot import (
    Anomaly,
    Bound,
    Detail,
    Env,
    FeedLine,
    Reason,
    SeedEvent,
    Slot,
    Snapshot,
    Trend,
)
from overwatch.tui.comparison import Comparison, Side
from overwatch.tui.comparison import Row as BesideRow
from overwatch.tui.context import Context, Ui, freshness
from tests.overwatch.tui import scenario
from tests.overwatch.tui.scenario import bars

_REASONS = {
    17: ("crashed 1s ago", "CUDA error 700"),
    9: ("4 culls in 60s", "3 fails at G2", "rent 0.41, acc +0.00 in 50 steps"),
    12: ("rent 0.52, acc +0.00", "acc 3.1 mad low"),
    30: ("2 culls in 60s", "return 4.6 mad low"),
    27: ("1 cull in 60s", "2 fails at G2"),
}


def _at(clock: str) -> float:
    hours, minutes, seconds = map(int, clock.split(":"))
    return datetime(2026, 7, 12, hours, minutes, seconds, 0, UTC).timestamp()


def _slots() -> dict[str, Slot]:
    def slot(stage: Stage, blueprint: str | None, age: int | None, **fields: float | str) -> Slot:
        bare = Slot(stage=stage.value, glyph=stage.glyph, blueprint=blueprint, age=age)
        return msgspec.structs.replace(bare, **fields)

    return {
        "r0c0": slot(Stage.TRAINING, "conv_small", 12, gate="G2 0.71", grad=0.62),
        "r0c1": slot(Stage.EMBARGOED, None, 4),
        "r0c2": slot(Stage.RESETTING, None, 1),
        "r1c0": slot(Stage.EMBARGOED, None, 1),
        "r1c1": slot(Stage.PRUNED, "conv_light", 0, alpha=0.3, gate="G2 fail: gradient ratio", grad=0.04),
        "r1c2": slot(Stage.DORMANT, None, None),
    }


def _line(clock: str, severity: str, slot: str, message: str, **fields: str) -> FeedLine:
    return FeedLine(
        time=_at(clock), severity=severity, subsystem="kasmina", message=message, env_id=9, gpu_id="gpu0",
        slot=slot, fields=fields,
    )  # fmt: skip


FEED = (
    _line("12:40:02", "info", "r1c1", "TRAINING>BLENDING", alpha="0.0"),
    _line("12:40:22", "info", "r0c1", "BLENDING>PRUNED", reason="policy"),
    _line("12:40:51", "warning", "r1c0", "gate=G2", passed="no"),
    _line("12:40:51", "info", "r1c0", "TRAINING>PRUNED", reason="gate"),
    _line("12:41:07", "warning", "r1c1", "gate=G2", passed="no"),
    FeedLine(time=_at("12:41:07"), severity="critical", subsystem="tolaria", message="crashed", env_id=17),
    _line("12:41:07", "info", "r1c1", "BLENDING>PRUNED", reason="gate"),
)

ACTIONS = (
    "88,214 PRUNE r1c1", "88,213 WAIT", "88,212 ADVANCE r0c0", "88,211 GERMINATE r1c1 conv_light",
    "88,210 PRUNE r1c0", "88,209 WAIT", "88,208 WAIT", "88,207 PRUNE r0c1", "88,206 WAIT", "88,205 WAIT",
)  # fmt: skip


def _trend(shape: str, ends: tuple[float, float], window: str) -> Trend:
    return Trend(values=bars(shape, *ends), window=window)


TRENDS = {
    "return": _trend("▆▆▆▆▅▅▅▄▄▃▃▂▂▂▁▁▁▁▁▁▁▁▁▁", (-0.21, 0.4), "24 episodes"),
    "metric": _trend("▇▇▇▇▇▇▇▆▆▆▅▅▅▅▅▅▅▄▄▄▄▄▄▄", (0.6, 0.9), "24 episodes"),
    "rent": _trend("▁▁▂▂▂▃▃▃▄▄▅▅▅▆▆▆▆▇▇▇▇▇▇▇", (0.1, 0.41), "last 150 steps"),
    "fps": _trend("▅▅▅▅▅▅▄▅▅▅▅▅▅▅▅▅▅▅▄▅▅▅▅▅", (298.0, 304.0), "last 60s"),
}


def _seed(clock: str, slot: str, text: str, why: str) -> SeedEvent:
    return SeedEvent(time=_at(clock), slot=slot, text=text, why=why)


SEED_EVENTS = (
    _seed("12:41:07", "r1c1", "BLENDING>PRUNED", "G2: gradient ratio 0.04 < 0.10"),
    _seed("12:40:51", "r1c0", "TRAINING>PRUNED", "G2: gradient ratio 0.05 < 0.10"),
    _seed("12:40:22", "r0c1", "BLENDING>PRUNED", "by policy, age 9"),
)


def _env(env: Env) -> Env:
    reasons = _REASONS.get(env.env_id, env.anomaly.reasons)
    changed = msgspec.structs.replace(env, anomaly=Anomaly(score=env.anomaly.score, reasons=reasons))
    return msgspec.structs.replace(changed, slots=_slots()) if env.env_id == 9 else changed


def opened() -> Snapshot:
    """The storm, in a view of env 9."""
    full = scenario.storm()
    envs = tuple(map(_env, full.envs))
    detail = Detail(
        env_id=9,
        env=next(env for env in envs if env.env_id == 9),
        rank=2,
        num_envs=64,
        reasons=(
            Reason(name="cull rate", weight=3.1, text="4 in 60s (usual 0.1)"),
            Reason(name="gate fails", weight=1.9, text="3 at G2: gradient ratio 0.04 < 0.10"),
            Reason(name="rent, no gain", weight=1.2, text="rent 0.41, acc +0.00 in 50 steps"),
        ),
        bound=Bound(state="SYNC-BOUND", mark="!", why="its lane waits for gpu1"),
        trends=TRENDS,
        actions=ACTIONS,
        seed_events=SEED_EVENTS,
    )
    run = msgspec.structs.replace(full.run, embargo=5)
    return msgspec.structs.replace(full, run=run, envs=envs, detail=detail, feed=FEED)


def opened_compact() -> Snapshot:
    """The same at 80 cells, with the verdict and samples of the second sketch."""
    full, small = opened(), scenario.storm_compact()
    return msgspec.structs.replace(full, policy=small.policy, verdict=small.verdict)


def _side(*values: float) -> Side:
    return Side(updates=tuple(map(float, range(len(values)))), values=values)


BOTH = Comparison(
    names=("digits-0712", "digits-0713"),
    headline="B parts from A at update 3: KL",
    rows=(
        BesideRow(
            name="kl_divergence",
            label="KL",
            fmt=".4f",
            verdict="worse",
            delta=0.4,
            parted=3.0,
            sides=(_side(0.01, 0.011, 0.012, 0.011), _side(0.01, 0.011, 0.02, float("nan"))),
        ),
        BesideRow(
            name="entropy",
            label="entropy",
            fmt=".2f",
            verdict="alike",
            delta=None,
            parted=None,
            sides=(_side(), _side(0.6)),
        ),
    ),
    verdicts=((Reported(at=0.0, update=0.0, severity="ok", text="all well"),), ()),
)
"""Two runs beside one another."""


def looking(snapshot: Snapshot, width: int, height: int, ui: Ui | None = None) -> Context:
    """One terminal at which env 9 was opened, or as given."""
    ui = ui or Ui(env_id=9)
    fresh = freshness(snapshot.link, 0.0)
    return Context(width=width, height=height, fresh=fresh, cursor=9, zone=UTC, ui=ui)
