"""Snapshots that tests draw: the scenario of the sketches, and runs in other states."""

from datetime import UTC, datetime

import msgspec

from overwatch.catalog import parse_stage
from overwatch.snapshot import (
    Aggregates,
    Anomaly,
    Best,
    Board,
    Bound,
    Env,
    FeedLine,
    Finding,
    Group,
    Host,
    Lane,
    Limit,
    Link,
    Metric,
    Modes,
    Reading,
    Run,
    Slot,
    Snapshot,
    Source,
    Subject,
    System,
    Timing,
    Verdict,
)

BARS = "▁▂▃▄▅▆▇█"
NOW = datetime(2026, 7, 12, 12, 41, 9, 400_000, UTC).timestamp()
SLOTS = ("r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2")
CODES = {
    "attention": "at", "conv_small": "cs", "conv_light": "cl", "conv_heavy": "ch", "bottleneck": "bn",
    "depthwise": "dw",
}  # fmt: skip
GLYPHS = {
    "·": "dormant", "○": "germinated", "◔": "training", "◑": "blending", "◕": "holding",
    "●": "fossilised", "✗": "pruned", "⊘": "embargoed", "↺": "resetting",
}  # fmt: skip
GIB = 1 << 30


def bars(shape: str, low: float, high: float) -> tuple[float, ...]:
    """Values that draw as `shape` over the scale from `low` to `high`."""
    return tuple(low + BARS.index(bar) / 7 * (high - low) for bar in shape)


def slots(strip: str) -> dict[str, Slot]:
    """Slots from a strip of chips as the sketch writes them, e.g. `●at ◑cs4 · ✗dw`."""
    by_code = {code: name for name, code in CODES.items()}
    found = {}
    for name, word in zip(SLOTS, strip.split(), strict=True):
        stage = parse_stage(GLYPHS[word[0]])
        found[name] = Slot(
            stage=stage.value,
            glyph=word[0],
            blueprint=by_code[word[1:3]] if len(word) > 1 else None,
            alpha=int(word[3]) / 10 + 0.05 if len(word) > 3 else None,
        )
    return found


def _reading(
    label: str,
    text: str,
    trend: str,
    shape: str,
    *,
    scale: tuple[float, float] = (0.0, 7.0),
    limit: str | None = None,
    status: str = "ok",
    direction: str | None = "down",
) -> Reading:
    return Reading(
        value=1.0, status=status, limit=Limit(text=limit, value=1.0) if limit else None, trend=trend,
        direction=direction, age_s=2.1, history=bars(shape, *scale), scale=scale, label=label, text=text,
    )  # fmt: skip


POLICY = {
    "return": _reading("return", "+0.412", "up", "▃▃▄▄▅▅▅▆▆▆", direction="up"),
    "kl_divergence": _reading("KL", "0.0231", "up", "▂▂▃▃▃▄▄▅▅▆", limit=">.015", status="warning"),
    "entropy": _reading("entropy", "62%max", "down", "▆▆▆▆▅▅▅▅▅▅", limit="<30%", direction=None),
    "explained_variance": _reading("expl var", "+0.71", "flat", "▅▅▅▅▅▅▆▆▅▅", limit="<0.0", direction="up"),
    "clip_fraction": _reading("clip", "0.184", "flat", "▃▃▄▄▄▄▄▄▅▄", limit=">.25"),
    "grad_norm": _reading("grad", "1.92", "flat", "▃▃▂▃▃▃▂▃▃▃", limit=">4.0×"),
    "learning_rate": _reading("lr", "2.4e-04", "down", "▇▇▇▇▆▆▆▆▅▅", direction=None),
    "update_time": _reading("update", "0.84s", "flat", "▃▃▃▃▃▃▃▃▄▃", limit=">2.0×"),
    "value_loss": _reading("val loss", "0.31", "down", "▅▅▄▄▄▃▃▃▃▃", limit=">2.0×"),
}
COMPACT_SHAPES = {
    "return": "▃▄▅▆▆", "kl_divergence": "▃▄▅▅▆", "entropy": "▆▅▅▅▅", "explained_variance": "▅▅▆▆▅",
    "clip_fraction": "▄▄▄▅▄", "grad_norm": "▃▃▂▃▃", "learning_rate": "▆▆▆▅▅", "update_time": "▃▃▃▄▃",
    "value_loss": "▃▃▃▃▃",
}  # fmt: skip

RUN = Run(
    run_id="digits-0712", task="morphogenesis", algo="ppo", reward_mode="shaped", devices=("gpu0", "gpu1"),
    ranks=2, n_envs=64, slots_enabled=True, git_sha="4be91c2", dirty=True,
    modes=Modes(amp="bf16", compile=True, ddp=2), metric=Metric(name="acc", unit="1", higher_is_better=True),
    blueprints=CODES, slots=SLOTS, episode=1284, batch=39, batches=100, update=312, elapsed_s=4330.0,
    eta_s=6662.0, checkpoint_age_s=371.0, steps=8_123_000, steps_per_s=31_200.0,
)  # fmt: skip


def _lanes() -> tuple[Lane, ...]:
    return (
        Lane(
            gpu_id="gpu1", utilization=0.97, utilization_history=bars("█████▇████", 0, 1),
            memory_used_bytes=63.0 * GIB, memory_total_bytes=80.0 * GIB, temperature_c=91, power_w=388,
            clock_hz=1140e6, clock_max_hz=1980e6,
            bound=Bound(state="THROTTLED", mark="!!", why="thermal: 1140 of 1980 MHz; cool it"),
        ),
        Lane(
            gpu_id="gpu0", utilization=0.62, utilization_history=bars("▇▇▆▃▇▇▆▃▇▇", 0, 1),
            memory_used_bytes=61.2 * GIB, memory_total_bytes=80.0 * GIB, temperature_c=64, power_w=412,
            clock_hz=1980e6, clock_max_hz=1980e6,
            bound=Bound(state="SYNC-BOUND", mark="!", why="38% of each step waits for gpu1"),
        ),
    )  # fmt: skip


SYSTEM = System(
    gpus=_lanes(),
    host=Host(
        cpu_utilization=0.64, cpu_history=bars("▅▅▆▅▅▆▅▅▅▆", 0, 1), ram_used_bytes=121 * GIB,
        ram_total_bytes=256 * GIB, disk_read_bytes_per_s=12e6, disk_write_bytes_per_s=48e6,
        network_bytes_per_s=3e6, loader_depth=6, loader_capacity=8,
    ),
    bound=Bound(state="SYNC-BOUND", mark="!", confidence=0.86),
)  # fmt: skip


def _finding(  # noqa: PLR0917 (a table reads better without six names a row)
    code: str, severity: str, scope: str, owner: str | None, age_s: float, texts: tuple[str, str]
) -> Finding:
    return Finding(
        id=f"{code}:{owner}", code=code, severity=severity, subject=Subject(scope=scope, id=owner),
        since=NOW - age_s, message=texts[0], hint=texts[1],
    )  # fmt: skip


FINDINGS = (
    _finding(
        "throttled", "critical", "gpu", "gpu1", 252,
        ("thermal throttle, clock at 58% of max; 31 slow envs", "raise the fan curve or lower power cap"),
    ),
    _finding(
        "env-crashed", "critical", "env", "17", 1,
        ("crashed at step 88,214: CUDA error 700", "open: last actions, events, traceback"),
    ),
    _finding(
        "cull-storm", "warning", "gpu", "gpu0", 65,
        ("cull storm: 9 culls in 60s over 4 envs (usual 0.4)", "gate G2 fails on gradient ratio"),
    ),
    _finding(
        "policy-kl", "warning", "policy", "kl_divergence", 110,
        ("KL above 0.015 in 3 of the last 5 updates", "lower the learning rate or the epochs"),
    ),
)  # fmt: skip


def _env(  # noqa: PLR0917 (a table reads better without eight names a row)
    env_id: int, lane: str, status: str, score: float, reasons: tuple[str, ...],
    numbers: tuple[float | None, ...], action: str, strip: str, *, stale: bool = False,
) -> Env:  # fmt: skip
    value, metric, rent, fps = numbers
    return Env(
        env_id=env_id, gpu_id=lane, status=status, episode_return=value, metric=metric, rent=rent, fps=fps,
        last_action=action, stale=stale, anomaly=Anomaly(score=score, reasons=reasons), slots=slots(strip),
    )  # fmt: skip


def _envs() -> tuple[Env, ...]:
    crashed = ("crashed 1s ago: CUDA error 700",)
    named = (
        _env(17, "gpu1", "crashed", 10.0, crashed, (None, 0.91, 0.12, None), "PRUNE r1c0",
             "●at ◑cs4 ◔bn ✗dw · ·", stale=True),
        _env(22, "gpu1", "ok", 0.4, (), (0.35, 0.94, 0.11, 170), "WAIT", "●at ●cs ◔bn · · ·"),
        _env(6, "gpu1", "ok", 0.3, (), (0.36, 0.95, 0.14, 172), "ADV r0c1", "●cs ◕bn ○dw · · ·"),
    )  # fmt: skip
    rest = tuple(
        _env(100 + i, "gpu1", "ok", 0.1, (), (0.38, 0.94, 0.12, 171), "WAIT", "●cs · · · · ·")
        for i in range(29)
    )
    bad = (
        _env(9, "gpu0", "degraded", 6.2, ("4 culls in 60s", "3 fails at G2"), (-0.21, 0.71, 0.41, 301),
             "PRUNE r1c1", "◔cs ⊘ ↺ ⊘ ✗cl ·"),
        _env(12, "gpu0", "degraded", 5.8, ("rent 0.52, acc +0.00 in 50 steps",), (-0.84, 0.66, 0.52, 306),
             "GERM r0c2", "◔cl ◔cl ○ch ◔cl ◔cl ◔cl"),
        _env(30, "gpu0", "degraded", 4.9, ("2 culls in 60s", "return 4.6 mad low"), (-0.33, 0.79, 0.38, 309),
             "PRUNE r0c1", "●at ✗bn · ⊘ · ·"),
        _env(3, "gpu0", "degraded", 4.1, ("2 culls in 60s",), (0.02, 0.84, 0.22, 311), "WAIT",
             "●at ⊘ ◑cs7 · · ·"),
        _env(27, "gpu0", "degraded", 3.7, ("1 cull in 60s", "2 fails at G2"), (0.05, 0.86, 0.25, 304),
             "SETA r0c0", "◑at2 ✗cs · · · ·"),
        _env(41, "gpu0", "ok", 0.6, (), (0.29, 0.93, 0.14, 307), "FOSS r0c1", "●cs ●at ○bn · · ·"),
    )  # fmt: skip
    more = tuple(
        _env(200 + i, "gpu0", "ok", 0.1, (), (0.41, 0.94, 0.13, 308), "WAIT", "●cs · · · · ·")
        for i in range(26)
    )
    return (*named, *rest, *bad, *more)


BOARD = Board(
    counts={"crashed": 1, "degraded": 5, "ok": 58},
    columns=("return", "metric", "rent", "fps"),
    groups=(
        Group(gpu_id="gpu1", n_envs=32, counts={"crashed": 1, "ok": 31}, median_return=0.38,
              median_metric=0.94, median_rent=0.12, median_fps=171, p10_return=0.22, p90_return=0.55),
        Group(gpu_id="gpu0", n_envs=32, counts={"degraded": 5, "ok": 27}, median_return=0.41,
              median_metric=0.94, median_rent=0.13, median_fps=308, p10_return=0.21, p90_return=0.58),
    ),
)  # fmt: skip

AGGREGATES = Aggregates(
    seed_census={
        "dormant": 121, "germinated": 22, "training": 88, "blending": 54, "holding": 31, "fossilised": 49,
        "pruned": 5, "embargoed": 12, "resetting": 2,
    },
    actions={"WAIT": 0.61, "GERM": 0.09, "ADV": 0.14, "FOSS": 0.05, "PRUNE": 0.11},
    best=(Best(env_id=44, field="return", value=0.61), Best(env_id=3, field="metric", value=0.97)),
    worst=(Best(env_id=12, field="return", value=-0.84), Best(env_id=12, field="metric", value=0.66)),
)  # fmt: skip


def _feed() -> tuple[FeedLine, ...]:
    second = NOW - 9.4
    return (
        FeedLine(time=second + 7.214, severity="warning", subsystem="kasmina", message="gate=G2", env_id=9,
                 gpu_id="gpu0", slot="r1c1", seed_id="9-r1c1-4", kind="gate_evaluated",
                 fields={"passed": "no", "grad_ratio": "0.04", "need": "0.10"}),
        FeedLine(time=second + 7.215, severity="info", subsystem="kasmina", message="BLENDING>PRUNED",
                 env_id=9, gpu_id="gpu0", slot="r1c1", seed_id="9-r1c1-4", kind="seed_stage_changed",
                 fields={"reason": "gate", "age": "31", "acc_delta": "-0.004"}),
        FeedLine(time=second + 8.020, severity="warning", subsystem="simic", message="update=312",
                 fields={"kl": "0.0231", "clip": "0.184", "entropy": "62%max", "ev": "+0.71", "grad": "1.92",
                         "early_stop": "no"}),
        FeedLine(time=second + 8.460, severity="critical", subsystem="tolaria", message="crashed", env_id=17,
                 gpu_id="gpu1", kind="env_crashed", fields={"step": "88214", "error": "CUDA error 700"}),
        FeedLine(time=second + 9.101, severity="info", subsystem="kasmina", message="HOLDING>FOSSILIZED",
                 env_id=44, gpu_id="gpu0", slot="r0c2", seed_id="44-r0c2-2", kind="seed_stage_changed",
                 fields={"blueprint": "attention", "gain": "+0.031"}),
    )  # fmt: skip


def storm() -> Snapshot:
    """The scenario of the first sketch: a throttled lane, a crash, a cull storm, KL above its limit."""
    return Snapshot(
        time=NOW,
        run=RUN,
        link=Link(
            state="live", data_age_s=0.3, lag_s=0.3, dropped=0, sources=(Source(name="r0", age_s=0.3),)
        ),
        verdict=Verdict(
            severity="critical",
            text="gpu1 is throttled (thermal) and gpu0 waits for it · env 17 crashed · cull storm on gpu0",
            counts={"critical": 2, "warning": 2},
            acknowledged=1,
        ),
        policy=POLICY,
        system=SYSTEM,
        board=BOARD,
        envs=_envs(),
        aggregates=AGGREGATES,
        findings=FINDINGS,
        feed=_feed(),
        feed_rate=18.0,
        timing=Timing(last_render_ms=2.1, mean_render_ms=2.4),
    )


def storm_compact() -> Snapshot:
    """The same minute as the second sketch draws it: five samples, a shorter verdict, two feed lines."""
    full = storm()
    policy = {
        name: msgspec.structs.replace(
            reading, history=(*reading.history[:5], *bars(COMPACT_SHAPES[name], 0.0, 7.0))
        )
        for name, reading in full.policy.items()
    }
    feed = (
        msgspec.structs.replace(full.feed[1], fields={"reason": "gate", "age": "31"}),
        msgspec.structs.replace(full.feed[3], fields={"error": "CUDA error 700"}),
    )
    verdict = msgspec.structs.replace(
        full.verdict, text="gpu1 throttled · env 17 crashed · cull storm on gpu0"
    )
    return msgspec.structs.replace(full, policy=policy, feed=feed, verdict=verdict)


def started() -> Snapshot:
    """A run that has begun and not yet finished an update."""
    run = msgspec.structs.replace(
        RUN, episode=0, batch=0, update=None, elapsed_s=4.0, eta_s=None, checkpoint_age_s=None,
        steps_per_s=18_900.0,
    )  # fmt: skip
    return Snapshot(
        time=NOW,
        run=run,
        link=Link(state="live", data_age_s=0.4, lag_s=0.1, dropped=0),
        verdict=Verdict(severity="ok", text="collecting; limits are judged after 20 updates"),
        timing=Timing(last_render_ms=2.1, mean_render_ms=2.4),
    )


def healthy() -> Snapshot:
    """A run in which nothing is wrong."""
    full = storm()
    envs = tuple(
        msgspec.structs.replace(env, status="ok", anomaly=Anomaly(score=0.3), stale=False)
        for env in full.envs
    )
    groups = tuple(msgspec.structs.replace(group, counts={"ok": 32}) for group in full.board.groups)
    calm = {name: msgspec.structs.replace(reading, status="ok") for name, reading in full.policy.items()}
    lanes = tuple(
        msgspec.structs.replace(lane, bound=Bound(state="COMPUTE-BOUND")) for lane in full.system.gpus
    )
    return msgspec.structs.replace(
        full,
        verdict=Verdict(severity="ok", text="64 env, policy and 2 lanes healthy"),
        policy=calm,
        system=msgspec.structs.replace(full.system, gpus=lanes, bound=Bound(state="COMPUTE-BOUND")),
        board=msgspec.structs.replace(full.board, counts={"ok": 64}, groups=groups),
        envs=envs,
        findings=(),
        feed=full.feed[1:2],
    )  # fmt: skip


def without_slots() -> Snapshot:
    """A run of an algorithm that grows nothing: no slots, no seeds, no rent."""
    full = healthy()
    run = msgspec.structs.replace(
        RUN, run_id="ant-1", task="isaac-ant", reward_mode=None, slots_enabled=False, slots=(), blueprints={},
        metric=None,
    )  # fmt: skip
    envs = tuple(
        msgspec.structs.replace(env, slots={}, rent=None, metric=None, last_action=None) for env in full.envs
    )
    board = msgspec.structs.replace(full.board, columns=("return", "fps"))
    return msgspec.structs.replace(
        full, run=run, envs=envs, board=board, aggregates=Aggregates(), feed=(), findings=()
    )


def huge(num_lanes: int = 8, per_lane: int = 4096) -> Snapshot:
    """Eight lanes of many envs, of which the view carries 256 rows."""
    full = without_slots()
    envs = tuple(
        Env(env_id=21_768 + i, gpu_id="gpu5", status="diverging" if i < 2 else "ok", episode_return=179.8,
            fps=1234.0, anomaly=Anomaly(score=8.8 if i < 2 else 0.1, reasons=("non-finite observation",)))
        for i in range(256)
    )  # fmt: skip
    names = ["gpu5", *(f"gpu{i}" for i in range(num_lanes) if i != 5)]
    groups = tuple(
        Group(gpu_id=name, n_envs=per_lane, median_return=182.6, median_fps=1250.0,
              counts={"diverging": 2, "ok": per_lane - 2} if name == "gpu5" else {"ok": per_lane})
        for name in names
    )  # fmt: skip
    lanes = tuple(
        Lane(gpu_id=name, rank=int(name[3:]), utilization=0.7, memory_used_bytes=44 * GIB,
             memory_total_bytes=141 * GIB, temperature_c=62, power_w=540,
             bound=Bound(state="SYNC-BOUND", mark="!"))
        for name in names
    )  # fmt: skip
    total = num_lanes * per_lane
    board = msgspec.structs.replace(
        full.board, groups=groups, counts={"diverging": 2, "ok": total - 2}, columns=("return", "fps")
    )
    return msgspec.structs.replace(
        full,
        run=msgspec.structs.replace(full.run, n_envs=total, devices=tuple(names), update=872, updates=2000),
        envs=envs,
        board=board,
        system=msgspec.structs.replace(full.system, gpus=lanes),
    )


def with_word(snapshot: Snapshot, word: str) -> Snapshot:
    """The snapshot with `word` in every text that comes from telemetry."""
    replace = msgspec.structs.replace
    run = replace(
        snapshot.run, run_id=word, task=word, algo=word, git_sha=word, preset=word, node=word,
        slots=(word, *snapshot.run.slots[1:]), blueprints={"b": word},
        metric=Metric(name=word, unit=word, higher_is_better=True),
    )  # fmt: skip
    slot = Slot(stage="blending", glyph="◑", blueprint="b", alpha=0.5)
    envs = tuple(
        replace(env, last_action=f"{word} {word}", anomaly=Anomaly(score=1.0, reasons=(word, word, word)),
                slots={word: slot, **dict(list(env.slots.items())[1:])})
        for env in snapshot.envs
    )  # fmt: skip
    bound = Bound(state=word, why=word, hint=word, mark="!")
    lanes = tuple(
        replace(lane, gpu_id=f"{word}{i}", bound=bound) for i, lane in enumerate(snapshot.system.gpus)
    )
    findings = tuple(
        replace(finding, message=word * 9, hint=word * 9, subject=Subject(scope="env", id=word))
        for finding in snapshot.findings
    )
    feed = tuple(
        replace(line, subsystem=word, message=word * 5, slot=word, seed_id=word, fields={word: word})
        for line in snapshot.feed
    )
    policy = {name: replace(reading, text=word) for name, reading in snapshot.policy.items()}
    return replace(
        snapshot, run=run, envs=envs, findings=findings, feed=feed, policy=policy,
        verdict=Verdict(severity="critical", text=word * 30),
        system=replace(snapshot.system, gpus=lanes, bound=bound),
        board=replace(snapshot.board, sort=word, filter=word),
    )  # fmt: skip
