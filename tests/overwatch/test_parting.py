"""How two returns part, the whole way: points of any OTLP sender, the snapshot, its recording, the page."""

import math
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from overwatch import codec
from overwatch.fold import DEFAULT_VIEW, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.serve.exposition import page as rendered
from overwatch.serve.prometheus import RunPage
from overwatch.snapshot import SCHEMA_VERSION, Parting, Snapshot
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose import paid

UPDATES = 46
PARTS = paid.PARTS["proxy up, true down"](UPDATES, 7)


def _export(values: dict[str, float], at: int) -> bytes:
    """Gauge points of a sender that knows nothing of us, whose only word of itself is its service."""
    message = ExportMetricsServiceRequest()
    resource = message.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "somebodys-trainer"
    metrics = resource.scope_metrics.add().metrics
    for name, value in values.items():
        metrics.add(name=name).gauge.data_points.add(time_unix_nano=at, as_double=value)
    return message.SerializeToString()


def _batches(*names: tuple[str, str], apart: bool) -> Iterator[Batch]:
    """An export an update with both returns, or one for each of them."""
    sequence = 0
    for n, row in enumerate(PARTS, start=1):
        at = START_NS + n * SECOND
        named = [{foreign: row[ours]} for foreign, ours in names]
        for values in named if apart else [{k: v for one in named for k, v in one.items()}]:
            sequence += 1
            yield Batch(
                sequence=sequence, stamp=at + sequence, signal=Signal.METRICS, body=_export(values, at)
            )


def _folded(batches: list[Batch], fold: Fold | None = None) -> Snapshot:
    frame = (fold or Fold()).advance(next_tick(batches[-1].stamp), batches, [])
    return next(shot for (_, view), shot in frame.snapshots.items() if view == DEFAULT_VIEW)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "names",
    [("overwatch.policy.proxy_return", "overwatch.policy.true_return"), ("proxy_score", "gold_score")],
)
def test_any_sender_of_two_returns_is_judged(names: tuple[str, str], apart: bool) -> None:  # noqa: FBT001
    """By their full names or by words in use; in one export or in two."""
    pairs = tuple(zip(names, ("proxy_return", "true_return"), strict=True))
    fold, found, verdicts = Fold(), None, set[str]()
    for batch in _batches(*pairs, apart=apart):
        found = _folded([batch], fold)
        verdicts.add(found.verdict.text)

    assert found is not None
    assert not any("nothing to judge" in text for text in verdicts)
    assert [one.code for one in found.findings] == ["reward-hacking"]
    assert found.parting is not None
    assert (found.parting.state, found.parting.way) == ("parted", "falls")


OURS = (("overwatch.policy.proxy_return", "proxy_return"), ("overwatch.policy.true_return", "true_return"))


def test_a_fold_that_goes_on_from_a_checkpoint_shows_the_same() -> None:
    """To the byte, with the finding that opened after it."""
    batches = list(_batches(*OURS, apart=False))
    whole, before = Fold(), Fold()
    for batch in batches[:30]:
        _folded([batch], before)
    after = Fold.load(before.dump())
    shown = [
        [_folded([batch], fold) for batch in some][-1]
        for fold, some in ((whole, batches), (after, batches[30:]))
    ]

    assert codec.encode(shown[0]) == codec.encode(shown[1])
    assert shown[0].parting is not None
    assert shown[0].parting.state == "parted"


def test_a_snapshot_without_the_field_is_read() -> None:
    """A recording of the minor version before has none."""
    shown = _folded(list(_batches(*OURS, apart=False))[:1])
    line = codec.encode(shown).replace(f'"{SCHEMA_VERSION}"'.encode(), b'"1.1"')
    before = line.replace(b'"parting":' + line.partition(b'"parting":')[2].partition(b"}")[0] + b"},", b"")

    assert before != line
    assert codec.decode(before).parting is None


def _parting(rows: list[dict[str, float]]) -> Parting | None:
    batches = [
        Batch(
            sequence=n,
            stamp=START_NS + n * SECOND,
            signal=Signal.METRICS,
            body=_export(row, START_NS + n * SECOND),
        )
        for n, row in enumerate(rows, start=1)
    ]
    fold = Fold()
    return [_folded([batch], fold).parting for batch in batches][-1]


def test_an_abstention_states_why() -> None:
    """No true return, one that never differs, too few updates; without either return there is nothing."""
    (paid_by, _), (wanted, _) = OURS
    proxy = [{paid_by: float(n)} for n in range(40)]
    constant = [{**row, wanted: 1.0} for row in proxy]
    enough = [{**row, wanted: row[paid_by]} for row in proxy]
    few = enough[:10]
    broken = [{**row, wanted: math.nan} for row in proxy]
    states = [_parting(rows) for rows in (proxy, constant, broken, few, enough)]

    assert [(one.state, one.text) for one in states if one is not None] == [
        ("no-true-signal", "no true signal"),
        ("no-true-signal", "no true signal"),
        ("no-true-signal", "no true signal"),
        ("waiting", "10 of 32 updates"),
        ("together", "the true return follows"),
    ]
    assert _parting([{"overwatch.policy.kl_divergence": 0.01}]) is None


def test_the_page_has_the_returns_the_gap_and_the_finding() -> None:
    """Under the names that the board and the alert ask for."""
    fold, frame = Fold(), None
    for batch in _batches(*OURS, apart=False):
        frame = fold.advance(next_tick(batch.stamp), [batch], [])
    assert frame is not None
    shown = frame
    page = rendered(RunPage().families(shown))[0].decode()
    samples = {
        (one.name, one.labels.get("code")): one.value
        for family in text_string_to_metric_families(page)
        for one in family.samples
    }

    assert samples["overwatch_policy_proxy_return", None] == pytest.approx(PARTS[-1]["proxy_return"])
    assert samples["overwatch_policy_true_return", None] == pytest.approx(PARTS[-1]["true_return"])
    assert samples["overwatch_policy_goodhart_gap", None] > 0.5
    assert samples["overwatch_run_findings", "reward-hacking"] == 1
