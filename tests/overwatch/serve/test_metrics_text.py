"""Families of metrics: what the formats' own parsers read from a page of them."""

import math
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from overwatch.catalog.run import PHASE_DURATION
from overwatch.serve.exposition import page
from overwatch.serve.metrics_text import Buckets, FamilyBuilder, exemplar_of

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
TRACE = "ab" * 16


def durations(most: int = 100) -> FamilyBuilder:
    """A histogram with an exemplar on its second bucket."""
    builder = FamilyBuilder(most)
    exemplars = {1: exemplar_of({"trace_id": TRACE}, 0.7, 1.8e9)}
    buckets = Buckets(cumulated={"0.1": 1, "1.0": 3, "+Inf": 4}, total=2.5, exemplars=exemplars)
    builder.histogram(PHASE_DURATION, {"run": "a"}, buckets)
    return builder


def test_a_histogram_counts_up_to_its_end_and_has_its_exemplar_in_open_metrics_alone() -> None:
    """Buckets, sum and count, as both parsers know them."""
    plain, openly = (page(durations().families(), accept)[0].decode() for accept in ("", OPEN_METRICS))
    for text, read in ((plain, plain_text), (openly, open_metrics)):
        (family,) = read(text)
        values = {(s.name.rpartition("_")[2], s.labels.get("le")): s.value for s in family.samples}
        assert values["bucket", "+Inf"] == values["count", None] == 4
        assert values["sum", None] == 2.5
    (family,) = open_metrics(openly)
    exemplar = next(sample.exemplar for sample in family.samples if sample.labels.get("le") == "1.0")
    assert exemplar is not None
    assert (exemplar.labels["trace_id"], exemplar.value) == (TRACE, 0.7)
    assert TRACE not in plain


def test_a_histogram_goes_in_whole_or_not_at_all() -> None:
    """What has no room is counted."""
    cut = durations(4)

    assert list(cut.families()) == []
    assert cut.dropped == 5


def test_an_exemplar_with_long_labels_is_none() -> None:
    """OpenMetrics 1.0 allows 128 characters; escapes count, so that no scraper rejects the page."""
    assert exemplar_of({"trace_id": "a" * 121}, 1.0, 1.0) is None
    assert exemplar_of({"trace_id": "a" * 120}, 1.0, 1.0) is not None
    assert exemplar_of({"a": "\x1b" * 21}, 1.0, 1.0) is not None
    assert exemplar_of({"a": "\x1b" * 22}, 1.0, 1.0) is None


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_absent_or_not_finite_has_no_sample(value: float | None) -> None:
    """It never looks like a number."""
    builder = FamilyBuilder()
    builder.gauge("x", "What?", {}, value)

    assert list(builder.families()) == []


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L", "Co"])))
@example("\x1b]52;c;eA==\x07")
@example(r"\u001b\u005cu001b \U000e0001 \\u001b")
@example("\\\x1b\\u00\x1b1b\U000e0001\u202e\x9b\ud800\r")
def test_a_label_steers_no_terminal_and_stays_itself(value: str) -> None:
    """What could steer is escaped, and undoing the escapes gives back the value."""
    builder = FamilyBuilder()
    builder.info("x", "What?", {"a": value})
    written = page(builder.families())[0].decode()
    (read,) = plain_text(written)
    label = read.samples[0].labels["a"]

    assert {unicodedata.category(letter) for letter in written.replace("\n", "")}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )
    escapes = r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))"
    assert re.sub(escapes, lambda found: chr(int(found[1] or found[2], 16)), label) == value
