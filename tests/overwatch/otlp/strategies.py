"""Strategies for every kind of event and for OTLP messages of every kind."""

import struct

from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overwatch.catalog import BY_NAME, Scope, Stage
from overwatch.events import (
    ActionTaken,
    Buckets,
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
    Origin,
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
)
from overwatch.otlp.result import EARLIEST, LATEST

WORDS = st.text(max_size=8)
TIMES = st.integers(EARLIEST, LATEST)
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
FIELDS = st.dictionaries(WORDS, WORDS, max_size=3)
CODES = {"<f8": 8, "<f4": 4, "<i8": 8, "<i4": 4, "<i2": 2, "|i1": 1, "<u4": 4, "<u2": 2, "|u1": 1}


def numbers(length: int) -> st.SearchStrategy[Column]:
    """Columns of `length` numbers of any dtype, any bits."""
    return st.sampled_from(sorted(CODES)).flatmap(
        lambda dtype: st.builds(
            Column,
            dtype=st.just(dtype),
            data=st.binary(min_size=length * CODES[dtype], max_size=length * CODES[dtype]),
        )
    )


def labelled(length: int) -> st.SearchStrategy[Column]:
    """Columns of `length` words."""
    words = st.lists(st.none() | WORDS, min_size=length, max_size=length)
    return words.map(Column.of_labels)


def columns(length: int) -> st.SearchStrategy[Column]:
    """Columns of numbers or words."""
    return numbers(length) | labelled(length)


NAMES = st.sampled_from(sorted(BY_NAME)) | WORDS | st.just("overwatch.scope")


CONFLATED = st.builds(
    Conflated,
    n=st.integers(1, 1000),
    first=st.none() | st.integers(0, 1000),
    low=st.dictionaries(st.sampled_from(["a", "b"]), st.builds(Column.scalar, st.floats())),
    high=st.dictionaries(st.sampled_from(["a", "b"]), st.builds(Column.scalar, st.floats())),
    warnings=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9)),
    criticals=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9)),
)


@st.composite
def measured(draw: st.DrawFn) -> Measured:
    """Measurements of one subject and of many, of every scope."""
    scope = draw(st.sampled_from(Scope))
    keyed = scope in (Scope.ENV, Scope.SLOT, Scope.GPU) or draw(st.booleans())
    length = draw(st.integers(0, 4))
    scalars = FLOATS.map(Column.scalar)
    if not keyed:
        length = 1
    values = draw(st.dictionaries(NAMES, scalars if not keyed else columns(length), max_size=4))
    if not keyed and draw(st.booleans()):
        values |= draw(st.dictionaries(NAMES, columns(1), max_size=2))
    keys = draw(st.dictionaries(WORDS, columns(length), min_size=1, max_size=2)) if keyed else {}
    return Measured(
        at=draw(TIMES),
        scope=scope,
        values=values,
        keys=keys,
        index=draw(st.none() | INTS),
        conflated=draw(st.none() | CONFLATED),
    )


_SUMS = st.floats(0, 1e100)
_SETS = st.dictionaries(WORDS, WORDS, max_size=3)
_BOUNDS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4, unique=True).map(
    lambda ends: tuple(sorted(end + 0.0 for end in ends))
)
BUCKETS = _BOUNDS.flatmap(
    lambda bounds: st.builds(
        Buckets,
        bounds=st.just(bounds),
        counts=st.lists(st.integers(0, 2**40), min_size=len(bounds) + 1, max_size=len(bounds) + 1).map(tuple),
    )
)
COUNTERS = st.builds(TallySeries, metric=st.text(min_size=1, max_size=8), labels=_SETS, sum=_SUMS)
HISTOGRAMS = BUCKETS.flatmap(
    lambda held: st.builds(
        TallySeries,
        metric=st.text(min_size=1, max_size=8),
        labels=_SETS,
        sum=st.none() | st.floats(-1e100, 1e100),
        count=st.just(sum(held.counts)),
        buckets=st.just(held),
    )
)


_TRACES = st.none() | st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
_SPANS = st.none() | st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")


def _opt(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


def _columnar(length: int) -> st.SearchStrategy[Event]:
    return st.builds(
        EpisodeEnded,
        at=TIMES,
        env_id=numbers(length),
        episode_return=numbers(length),
        length=_opt(numbers(length)),
        metric=_opt(numbers(length)),
        best=_opt(numbers(length)),
        best_step=_opt(numbers(length)),
        growth_ratio=_opt(numbers(length)),
        fossils=_opt(numbers(length)),
        prunes=_opt(numbers(length)),
        trace_id=_TRACES,
        span_id=_SPANS,
    ) | st.builds(
        ActionTaken,
        at=TIMES,
        env_id=numbers(length),
        op=labelled(length),
        slot=_opt(labelled(length)),
        blueprint=_opt(labelled(length)),
        step=_opt(INTS),
        confidence=_opt(numbers(length)),
        second=_opt(labelled(length)),
        second_confidence=_opt(numbers(length)),
        third=_opt(labelled(length)),
        third_confidence=_opt(numbers(length)),
    )


FACTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        RunStarted,
        at=TIMES,
        task=_opt(WORDS),
        n_envs=_opt(INTS),
        devices=st.lists(WORDS, max_size=3).map(tuple),
        slots=st.lists(WORDS, max_size=3).map(tuple),
        blueprints=FIELDS,
        metric=_opt(st.builds(MetricInfo, name=WORDS, unit=WORDS, higher_is_better=st.booleans())),
        preset=WORDS,
        updates=_opt(INTS),
        git_sha=_opt(WORDS),
        dirty=_opt(st.booleans()),
        compile=_opt(st.booleans()),
        ddp=_opt(INTS),
        config=FIELDS,
    ),
    st.builds(RunFinished, at=TIMES, outcome=WORDS, reason=_opt(WORDS)),
    st.integers(0, 4).flatmap(_columnar),
    st.builds(
        SeedStageChanged,
        at=TIMES,
        env_id=INTS,
        slot=WORDS,
        seed_id=WORDS,
        before=st.sampled_from(Stage),
        after=st.sampled_from(Stage),
        blueprint=_opt(WORDS),
        alpha=_opt(FLOATS),
        age=_opt(INTS),
        reason=_opt(WORDS),
        fields=FIELDS,
    ),
    st.builds(
        GateEvaluated,
        at=TIMES,
        env_id=INTS,
        slot=WORDS,
        seed_id=WORDS,
        gate=WORDS,
        passed=st.booleans(),
        score=_opt(FLOATS),
        checks_passed=st.lists(WORDS, max_size=3).map(tuple),
        checks_failed=st.lists(WORDS, max_size=3).map(tuple),
        message=_opt(WORDS),
    ),
    st.builds(EnvRolledBack, at=TIMES, env_id=INTS, reason=WORDS, step=_opt(INTS)),
    st.builds(EnvCrashed, at=TIMES, env_id=INTS, error=WORDS, step=_opt(INTS), traceback=_opt(WORDS)),
    st.integers(0, 4).flatmap(
        lambda length: st.builds(
            EnvsRemoved,
            at=TIMES,
            env_id=numbers(length),
            metrics=st.lists(WORDS, max_size=3).map(tuple),
        )
    ),
    st.builds(
        NonFiniteSeen,
        at=TIMES,
        scope=st.sampled_from(Scope),
        metric=WORDS,
        kind=st.sampled_from(["nan", "inf"]),
        count=INTS,
        env_ids=st.lists(INTS, max_size=3).map(tuple),
    ),
    st.builds(
        EarlyStopped,
        at=TIMES,
        update=INTS,
        epoch=INTS,
        kl_divergence=FLOATS,
        target=FLOATS,
        minibatches_skipped=INTS,
    ),
    st.builds(
        CurriculumChanged,
        at=TIMES,
        name=WORDS,
        before=_opt(WORDS),
        after=_opt(WORDS),
        env_id=_opt(st.integers(0, 4).flatmap(numbers)),
    ),
    st.builds(
        CheckpointSaved,
        at=TIMES,
        path=WORDS,
        update=_opt(INTS),
        size_bytes=_opt(INTS),
        duration_s=_opt(FLOATS),
        trace_id=_TRACES,
        span_id=_SPANS,
    ),
    st.builds(
        TrainingRecovered,
        at=TIMES,
        action=WORDS,
        update=_opt(INTS),
        cause=_opt(INTS),
        before=_opt(FLOATS),
        after=_opt(FLOATS),
        reason=_opt(WORDS),
    ),
    st.builds(
        RunStateChanged,
        at=TIMES,
        before=WORDS,
        after=WORDS,
        reason=_opt(WORDS),
        command=_opt(WORDS),
        by=_opt(WORDS),
    ),
    st.builds(
        CommandApplied,
        at=TIMES,
        command=WORDS,
        kind=WORDS,
        outcome=WORDS,
        detail=_opt(WORDS),
        changes=FIELDS,
        by=_opt(WORDS),
        update=_opt(INTS),
    ),
    st.builds(
        Tallied,
        at=TIMES,
        scope=st.sampled_from(Scope),
        series=st.lists(st.one_of(COUNTERS, HISTOGRAMS), max_size=3).map(tuple),
    ),
    st.builds(FindingAcknowledged, at=TIMES, finding=WORDS, by=_opt(WORDS)),
    st.builds(PhaseBegan, at=TIMES, phase=WORDS),
    st.builds(
        PhaseEnded,
        at=TIMES,
        phase=WORDS,
        duration_s=FLOATS,
        update=_opt(INTS),
        trace_id=_opt(st.just("0af7651916cd43dd8448eb211c80319c")),
        span_id=_opt(st.just("b7ad6b7169203331")),
    ),
    st.builds(
        LogLine,
        at=TIMES,
        trace_id=_TRACES,
        span_id=_SPANS,
        severity=st.sampled_from(Severity),
        message=WORDS,
        subsystem=WORDS,
        env_id=_opt(INTS),
        slot=_opt(WORDS),
        seed_id=_opt(WORDS),
        fields=FIELDS,
    ),
)
EVENTS: st.SearchStrategy[Event] = FACTS | measured()

_NAMES = st.text(min_size=1, max_size=6)
ORIGINS = st.builds(
    Origin,
    run_id=_NAMES,
    role=_NAMES,
    rank=st.integers(0, 2**31),
    epoch=WORDS,
    ours=st.booleans(),
    task=st.none() | _NAMES,
    algo=st.none() | _NAMES,
)
RECORDS = st.builds(Record, origin=ORIGINS, event=EVENTS, seq=st.none() | st.integers(0, 2**63 - 1))

REQUESTS = (ExportLogsServiceRequest, ExportMetricsServiceRequest, ExportTraceServiceRequest)


def nan_bits() -> Column:
    """A double that is NaN with bits no text can carry."""
    return Column(dtype="<f8", data=struct.pack("<Q", 0xFFF8_0000_0000_00AB))
