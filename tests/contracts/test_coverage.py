"""Nothing is emitted that nobody reads, nothing is shown that nobody fills: events, fields, rows.

Who reads an event is seen by running the fold over events that note which of their fields were looked at. Who
fills what is read from the source: a keyword where the thing is made. What has one end only is listed by
name, with the reason.
"""

import ast
import dataclasses
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
import stable_baselines3

from overwatch import catalog
from overwatch.catalog import ROWS, Library, Metric, Scope, Stage, aliases_of, of_scope
from overwatch.diagnose import Assessment, assess
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    Column,
    CommandApplied,
    Conflated,
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EnvRolledBack,
    EnvsRemoved,
    EpisodeEnded,
    Event,
    FindingAcknowledged,
    GateEvaluated,
    LogLine,
    Measured,
    MetricInfo,
    NonFiniteSeen,
    PhaseBegan,
    PhaseEnded,
    Record,
    RunFinished,
    RunStarted,
    RunStateChanged,
    SeedStageChanged,
    Severity,
    Tallied,
    TallySeries,
    TrainingRecovered,
    scalars,
)
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from overwatch.state import apply, new_run
from overwatch_rl.worlds.morphogenesis.rewards import SUMMARISED
from tests import fakes
from tests.fakes import START_NS

SRC: Final = Path(__file__).parents[2] / "src"
EMITTERS: Final = ("overwatch/sdk", "overwatch/adapters", "overwatch/simulate", "overwatch/otlp",
                  "overwatch/collector", "overwatch_rl")  # fmt: skip
DERIVERS: Final = ("overwatch/state", "overwatch/diagnose", "overwatch/projection", "overwatch/serve")
FILLERS: Final = ("overwatch/projection", "overwatch/diagnose", "overwatch/state")
READERS: Final = ("overwatch/tui", "overwatch/serve", "overwatch/cli", "overwatch/feeds")

UNREAD: Final = {
    "RunStarted.env_offset": "already added to the ids; kept for who reads a recording",
    "RunStarted.world_size": "the ranks that speak are counted instead",
    "GateEvaluated.checks_passed": "kept for reports; a failed check is what explains",
    "EnvCrashed.traceback": "kept for the post-mortem; the error is shown",
    "NonFiniteSeen.scope": "the metric's name states it",
    "Tallied.scope": "the metrics' names state it",
    "PhaseEnded.update": "on the span, for other tools",
    "EpisodeEnded.trace_id": "for who joins a recording with traces",
    "EpisodeEnded.span_id": "for who joins a recording with traces",
    "LogLine.trace_id": "for who joins a recording with traces",
    "LogLine.span_id": "for who joins a recording with traces",
}
"""Fields of events that the tower does not look at, each with its reason."""

NOT_EMITTED: Final = {
    "CommandApplied.update": "an orchestrator does not know it; a trainer that obeys commands itself does",
    "FindingAcknowledged.finding": "comes with the view API's door for it",
    "FindingAcknowledged.by": "comes with the view API's door for it",
}
"""Fields of events that nobody emits yet."""

_JSON: Final = "for readers of the JSON"
UNSHOWN: Final = {
    "Snapshot.schema_version": "the decoder of the lines looks at it",
    "Baseline.phases": "the judgement compares with it",
    "Baseline.rate": "the judgement compares with it",
    "Baseline.scatter": "the judgement compares with it",
    "Detail.events": f"{_JSON}; the drawer shows lifecycle and actions apart",
    "Finding.runbook": "the page, the report and webhooks show it; the terminal has the texts itself",
    "Finding.runbook_url": "for who relays findings and has the texts at an address",
    "Link.halted": "`Link.word` looks at it",
    "Env.step_time_s": f"{_JSON}; the board shows steps a second",
    "Group.hidden": f"{_JSON}; the board counts the rows it has",
    "Lane.oom_s": f"{_JSON}; the bound states it",
    "Lane.step_s": _JSON,
    "Lane.update_s": _JSON,
    "Link.away_s": f"{_JSON}; the banner shows it",
    "Parting.needed": f"{_JSON}; the text has it while there are too few",
    "Parting.pairs": f"{_JSON}; the text has it while there are too few",
    "Parting.way": f"{_JSON}; the text has it",
    "Link.last_at": f"{_JSON}; the banner shows it",
    "Link.last_from": f"{_JSON}; the banner shows it",
    "Link.sources": f"{_JSON}; the worst of them makes the state of the link",
    "Metric.higher_is_better": f"{_JSON}; best and worst follow from it",
    "Reading.spread": _JSON,
    "Run.checkpoint_path": _JSON,
    "Run.control": _JSON,
    "Run.command": f"{_JSON}; the feed has each of them",
    "Snapshot.totals": f"{_JSON}; lines of services and the page of metrics have the parts",
    "Source.interval_s": _JSON,
    "Source.overlapping": f"{_JSON}; a finding states it",
    "Spread.p50": _JSON,
    "Spread.p95": _JSON,
    "Total.p50": _JSON,
    "Total.p99": _JSON,
    "Total.rate": _JSON,
    "Throughput.baseline": f"{_JSON}; a finding states it",
}
"""Fields of the snapshot that a view, page or message need not look at, each with its reason."""

FILLED_ELSEWHERE: Final = {
    **dict.fromkeys(
        (
            "Group.median_return",
            "Group.median_metric",
            "Group.median_rent",
            "Group.median_fps",
            "Group.p10_return",
            "Group.p90_return",
        ),
        "a middle of the rollups, by its name",
    ),
    "Finding.runbook_url": "who relays findings and has the texts at an address",
    "Snapshot.schema_version": "its default",
    "Snapshot.timing": "the reader's own",
    "Timing.last_render_ms": "the reader's own",
    "Timing.mean_render_ms": "the reader's own",
}
"""Fields of the snapshot that projection does not fill."""

IDS: Final = Column.of([0, 1])
T: Final = START_NS
EVENTS: Final[tuple[Event, ...]] = (
    RunStarted(
        at=T, task="t", algo="a", reward_mode="r", n_envs=2, devices=("g0",), lanes={"g0": "cuda:0"},
        slots=("a",), embargo=3, blueprints={"norm": "no"}, metric=MetricInfo(name="m"), preset="grpo",
        updates=10, batches=3, git_sha="abc", dirty=True, node="n", amp="bf16", compile=True, ddp=2,
        world_size=2, attempt=1, group="A", env_offset=4, config={"target_kl": "0.02"},
        resumed=3,
    ),
    EpisodeEnded(
        at=T, env_id=IDS, episode_return=Column.of([1.0, 2.0]), length=IDS, metric=Column.of([0.1, 0.2]),
        best=Column.of([0.2, 0.3]), best_step=IDS, growth_ratio=Column.of([1.1, 1.2]), fossils=IDS,
        prunes=IDS, step=3, trace_id="a" * 32, span_id="b" * 16,
    ),
    ActionTaken(
        at=T, env_id=IDS, op=Column.of_labels(["grow", "wait"]), slot=Column.of_labels(["a", None]),
        blueprint=Column.of_labels(["norm", None]), step=4, confidence=Column.of([0.9, 0.8]),
        second=Column.of_labels(["wait", "grow"]), second_confidence=Column.of([0.07, 0.15]),
        third=Column.of_labels(["prune", None]), third_confidence=Column.of([0.03, 0.01]),
    ),
    SeedStageChanged(
        at=T, env_id=0, slot="a", seed_id="s", before=Stage.TRAINING, after=Stage.BLENDING,
        blueprint="norm", alpha=0.1, age=4, reason="x", fields={"k": "v"},
    ),
    GateEvaluated(
        at=T, env_id=0, slot="a", seed_id="s", gate="G2", passed=False, score=0.3, checks_passed=("x",),
        checks_failed=("y",), message="m",
    ),
    EnvCrashed(at=T, env_id=1, error="boom", step=5, traceback="tb"),
    EnvRolledBack(at=T, env_id=1, reason="divergence", step=6),
    NonFiniteSeen(at=T, scope=Scope.ENV, metric="overwatch.env.reward", kind="nan", count=2, env_ids=(1,)),
    EarlyStopped(at=T, update=1, epoch=1, kl_divergence=0.05, target=0.03, minibatches_skipped=3),
    CurriculumChanged(at=T, name="level", before="1", after="2", env_id=IDS),
    CheckpointSaved(
        at=T, path="p", update=1, size_bytes=5, duration_s=0.1, trace_id="a" * 32, span_id="b" * 16
    ),
    TrainingRecovered(
        at=T, action="rollback", update=5, cause=4, before=5.0, after=2.0, reason="three updates were broken"
    ),
    RunStateChanged(at=T, before="running", after="paused", reason="r", command="c", by="me"),
    CommandApplied(
        at=T, command="c", kind="tune", outcome="done", detail="d", changes={"lr": "1 > 2"}, by="me", update=1
    ),
    PhaseBegan(at=T, phase="evaluation"),
    PhaseEnded(at=T, phase="collect", duration_s=0.5, update=1, trace_id="a" * 32, span_id="b" * 16),
    LogLine(
        at=T, trace_id="a" * 32, span_id="b" * 16, severity=Severity.WARNING, message="hi", subsystem="x",
        env_id=0, slot="a", seed_id="s", fields={"a": "b"},
    ),
    FindingAcknowledged(at=T, finding="x", by="me"),
    Measured(
        at=T, scope=Scope.POLICY, values=scalars({"overwatch.policy.kl_divergence": 0.01}), index=3,
        conflated=Conflated(n=2),
    ),
    fakes.envs(T, [0, 1], 1, reward=[1.0, 2.0]),
    Tallied(at=T, scope=Scope.ROLLOUTS, series=(TallySeries(metric="m", sum=1.0),)),
    EnvsRemoved(at=T, env_id=Column.of([1]), metrics=()),
    RunFinished(at=T, outcome="completed", reason="x"),
)  # fmt: skip
"""One of each kind, every field of it set."""


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [f"{kind.__name__}.{name}" for name in kind.__struct_fields__]


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """A structure and all that it holds, in any order, more than once."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from _structs(field.type)
    elif get_origin(kind) in (Union, UnionType, tuple, dict):
        for one in get_args(kind):
            yield from _structs(one)


def _sources(folders: Iterable[str]) -> list[ast.Module]:
    return [_parsed(path) for folder in folders for path in sorted((SRC / folder).rglob("*.py"))]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _made(folders: Iterable[str], kinds: Iterable[str], other: dict[str, str]) -> set[str]:
    """`Kind.field` for every keyword with which a kind is made; `other` are names that modules call kinds.

    What a copy of anything replaces counts for every kind that has such a field. Where `**` gives keywords,
    they are the keys of the dictionaries that the module writes out.
    """
    wanted, found = set(kinds), set()
    for module in _sources(folders):
        keys = {
            key.value
            for node in ast.walk(module)
            if isinstance(node, ast.Dict)
            for key in node.keys
            if isinstance(key, ast.Constant)
        }
        for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            kind = other.get(name, name)
            made = wanted if kind == "replace" else {kind} & wanted
            words = {word.arg for word in call.keywords}
            found |= {f"{one}.{word}" for one in made for word in words | (keys if None in words else set())}
    return found


def _traced(event: Event, read: set[str]) -> Event:
    """The same event, noting which of its fields are looked at."""
    kind = type(event)

    def look(self: Event, name: str) -> object:
        if name in kind.__struct_fields__:
            read.add(f"{kind.__name__}.{name}")
        return object.__getattribute__(self, name)

    body = {"__getattribute__": look, "__module__": kind.__module__}
    tag = kind.__struct_config__.tag
    noting = type(kind)(kind.__name__, (kind,), body, frozen=True, kw_only=True, tag=tag)
    return noting(**{name: getattr(event, name) for name in kind.__struct_fields__})


def test_there_is_an_event_of_each_kind() -> None:
    """The list above is whole, and leaves no field at its default."""
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    for event in EVENTS[:18]:
        for field in msgspec.structs.fields(type(event)):
            unset = (field.default,) if field.default is not msgspec.NODEFAULT else ()
            assert getattr(event, field.name) not in unset or isinstance(event, Measured), field.name


def test_every_field_of_an_event_is_read() -> None:
    """The fold, the judgement or the projection looks at it, or it is listed with its reason."""
    read: set[str] = set()
    state, assessment = None, Assessment()
    for number, event in enumerate(EVENTS, start=1):
        record = Record(origin=fakes.ORIGIN, event=_traced(event, read), seq=number)
        state = state or new_run(record)
        apply(state, record, T + number)
        judged = assess(state, assessment, T + number * 100_000_000)
        assessment = judged.assessment
        for view in (View(), View(env_id=0)):
            project(state, judged, view)

    everything = {field for kind in get_args(Event) for field in _fields(kind)}
    assert everything - read == set(UNREAD)


def test_every_field_of_an_event_is_emitted() -> None:
    """Somebody makes the event with this field: SDK, adapter, simulator, a receiver, the collector."""
    kinds = {kind.__name__: kind for kind in get_args(Event)}
    reported = _made(EMITTERS, kinds, {})

    everything = {field for kind in kinds.values() for field in _fields(kind)}
    assert everything - reported == set(NOT_EMITTED)


def test_every_field_of_the_snapshot_is_filled() -> None:
    """Projection makes every structure with every field, or it is listed with who does."""
    kinds = {kind.__name__: kind for kind in _structs(Snapshot)}
    other = {"LimitView": "Limit", "ServiceView": "Service"}
    filled = _made(FILLERS, kinds, other)
    filled |= {f"Lane.{row.short}" for row in of_scope(Scope.GPU)}
    filled |= {f"Host.{row.short}" for row in of_scope(Scope.HOST)}

    everything = {field for kind in kinds.values() for field in _fields(kind)}
    assert everything - filled == set(FILLED_ELSEWHERE)


def test_every_field_of_the_snapshot_is_looked_at() -> None:
    """A view, a page or a message asks for the name, or it is listed with its reason."""
    requested: set[str] = set()
    for module in _sources(READERS):
        requested |= {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    by_row = {row.short for row in ROWS if row.scope in (Scope.GPU, Scope.HOST)}
    everything = {field for kind in _structs(Snapshot) for field in _fields(kind)}
    unasked = {field for field in everything if field.partition(".")[2] not in requested | by_row}

    assert unasked - set(UNSHOWN) == set()
    assert set(UNSHOWN) - everything == set()


def test_every_row_is_emitted() -> None:
    """What emits it names it: a module of SDK, adapters, trainer or tower, or the summary of a world."""
    reported = {row.name for row in ROWS if _emitters(row) or row.short in SUMMARISED}

    assert {row.name for row in ROWS} - reported == set()


def test_our_trainer_emits_most_rows_of_a_policy() -> None:
    """What its update, its diagnostics and its loop name as a number is a row."""
    modules = ("algorithms/common.py", "algorithms/grpo.py", "algorithms/policy.py", "algorithms/ppo.py",
               "grpo/trainer.py", "training/diagnostics.py", "training/trainer.py",
               "training/warmup.py")  # fmt: skip
    emitted = set().union(*(_words(SRC / "overwatch_rl" / module)[1] for module in modules))
    rows = [row for row in of_scope(Scope.POLICY) if row.short in emitted]

    assert len(rows) > 50


def _emitters(row: Metric) -> set[str]:
    """Modules, or libraries with an adapter, that name a row as something to emit."""
    return _named(row, (*EMITTERS, *DERIVERS)) | {
        alias.name
        for alias in aliases_of(row)
        if alias.library is Library.SB3 and f'"{alias.name}"' in _sb3()
    }


def _named(row: Metric, folders: Iterable[str]) -> set[str]:
    """Modules that name a row: by its constant, its names, or a keyword of its short name."""
    constant = _constants().get(row.name)
    found = set()
    for folder in folders:
        for path in sorted((SRC / folder).rglob("*.py")):
            names, words = _words(path)
            if constant in names or words & {row.name, row.short}:
                found.add(str(path.relative_to(SRC)))
    return found


@cache
def _words(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Names from the catalogue that a module imports, and words that it holds."""
    names, words = set(), set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overwatch.catalog"):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            names.add(node.attr)  # of a module of the catalogue, imported as a whole
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            words.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            words.add(node.target.id)
    return frozenset(names), frozenset(words)


@cache
def _constants() -> dict[str, str]:
    """What the constant of a row is called, by the row's name."""
    modules = [module for module in vars(catalog).values() if isinstance(module, ModuleType)]
    return {
        value.name: name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Metric) and name.isupper()
    }


@cache
def _sb3() -> str:
    """The source of the library that has an adapter, where its logger's keys are written."""
    folder = Path(stable_baselines3.__file__).parent
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))


def test_every_part_of_a_row_is_read() -> None:
    """Whatever a row states of a metric, something looks at."""
    modules = _sources(("overwatch",))
    requested = {node.attr for one in modules for node in ast.walk(one) if isinstance(node, ast.Attribute)}

    assert {field.name for field in dataclasses.fields(Metric)} - requested == set()
