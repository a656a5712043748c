"""Families as text: what the formats' own parsers read from them."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest as generate_plain
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from prometheus_client.registry import Collector

from overwatch.serve.metrics_text import (
    Family,
    FamilyKind,
    Text,
    accepts_gzip,
    choose,
    exemplar_text,
    labels_text,
    page,
    visible,
)


class Made(Collector):
    """Families of prometheus_client that are there already."""

    def __init__(self, families: list[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> list[MetricFamily]:
        """All of them."""
        return self._families


def read(parse: Callable[[str], Iterable[MetricFamily]], text: bytes) -> dict[object, object]:
    """What a parser finds."""
    return {
        (
            family.name,
            family.type,
            family.documentation,
            sample.name,
            *sorted(sample.labels.items()),
        ): sample.value
        for family in parse(text.decode())
        for sample in family.samples
    }


@given(
    st.lists(
        st.tuples(st.text(max_size=9), st.floats(allow_nan=False, allow_infinity=False)),
        unique_by=lambda found: found[0],
    ),
    st.lists(st.integers(0, 1 << 40), min_size=2, max_size=4),
)
def test_a_page_is_what_prometheus_client_writes(found: list[tuple[str, float]], steps: list[int]) -> None:
    """The same gauge, counter, info and histogram: parsers read the same from both, in both formats."""
    gauge, counter, info = (
        Family("a_b", FamilyKind.GAUGE, 'Is "it"?'),
        Family("c", FamilyKind.COUNTER, "?"),
        Family("d", FamilyKind.INFO, "?"),
    )
    histogram = Family("e", FamilyKind.HISTOGRAM, "?")
    their_gauge = GaugeMetricFamily("a_b", 'Is "it"?', labels=["word"])
    their_counter = CounterMetricFamily("c", "?", labels=["word"])
    their_info = InfoMetricFamily("d", "?", labels=[])
    their_histogram = HistogramMetricFamily("e", "?", labels=[])
    for raw, value in found:
        labels = labels_text({"word": raw})
        gauge.put(labels, value)
        counter.put(labels, abs(value))
        info.put(labels, 1)
        word = visible(raw).encode("utf-8", "replace").decode()
        their_gauge.add_metric([word], value)
        their_counter.add_metric([word], abs(value))
        their_info.add_metric([], {"word": word})
    counts = list(accumulate(steps))
    ends = [*map(str, map(float, range(len(counts) - 1))), "+Inf"]
    histogram.put_histogram("", dict(zip(ends, counts, strict=True)), 2.5)
    their_histogram.add_metric([], list(zip(ends, counts, strict=True)), 2.5)
    made = Made([their_gauge, their_counter, their_info, their_histogram])
    ours = [gauge, counter, info, histogram]
    assert read(plain_text, page(ours, Text.PLAIN)) == read(plain_text, generate_plain(made))  # type: ignore[arg-type]
    assert read(open_metrics, page(ours, Text.OPEN_METRICS)) == read(open_metrics, generate_open(made))


BUCKETS = {"0.1": 1, "1.0": 3, "+Inf": 4}


def durations() -> Family:
    """A histogram with an exemplar on its second bucket."""
    family = Family("step_seconds", FamilyKind.HISTOGRAM, "How long?")
    family.put_histogram('run="a"', BUCKETS, 2.5)
    family.exemplars[1] = exemplar_text({"trace_id": "ab" * 16}, 0.7, 1.8e9) or ""
    return family


def test_a_counter_is_named_as_each_format_wants_it() -> None:
    """The family of OpenMetrics has no suffix, that of the plain text has."""
    family = Family("steps", FamilyKind.COUNTER, "How many?")
    family.put("", 3)

    assert (
        family.text(Text.PLAIN)
        == "# HELP steps_total How many?\n# TYPE steps_total counter\nsteps_total 3.0\n"
    )
    assert family.text(Text.OPEN_METRICS) == "# HELP steps How many?\n# TYPE steps counter\nsteps_total 3.0\n"


def test_an_info_is_a_gauge_where_there_are_none() -> None:
    """Plain text knows no infos."""
    family = Family("target", FamilyKind.INFO, "Who?")
    family.put('service_name="x"', 1)

    assert "# TYPE target_info gauge" in family.text(Text.PLAIN)
    assert "# TYPE target info" in family.text(Text.OPEN_METRICS)
    (read,) = open_metrics(page([family], Text.OPEN_METRICS).decode())
    assert read.samples[0].labels == {"service_name": "x"}


def test_exemplars_are_in_open_metrics_alone() -> None:
    """A bucket carries the trace it was observed in; text 0.0.4 has no place for that."""
    (read,) = open_metrics(page([durations()], Text.OPEN_METRICS).decode())
    exemplar = next(sample.exemplar for sample in read.samples if sample.labels.get("le") == "1.0")

    assert exemplar is not None
    assert (exemplar.labels["trace_id"], exemplar.value) == ("ab" * 16, 0.7)
    assert "ab" * 16 not in page([durations()], Text.PLAIN).decode()


def test_a_histogram_counts_up_to_its_end() -> None:
    """Buckets, sum and count, as both parsers know them."""
    for text, read in ((Text.PLAIN, plain_text), (Text.OPEN_METRICS, open_metrics)):
        (family,) = read(page([durations()], text).decode())
        values = {(s.name, s.labels.get("le")): s.value for s in family.samples}
        assert values["step_seconds_bucket", "+Inf"] == values["step_seconds_count", None] == 4
        assert values["step_seconds_sum", None] == 2.5


def test_an_exemplar_with_long_labels_is_none() -> None:
    """OpenMetrics 1.0 allows 128 characters."""
    assert exemplar_text({"trace_id": "a" * 121}, 1.0, 1.0) is None
    assert exemplar_text({"trace_id": "a" * 120}, 1.0, 1.0) is not None


LINE_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Where the reference parser ends a line although the format does not."""


@given(
    words=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters=LINE_ENDS), max_size=20),
        min_size=1,
        max_size=5,
    ),
    value=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_words_and_numbers_are_read_back(words: list[str], value: float) -> None:
    """Quotes, newlines, backslashes and every digit of a number survive both formats."""
    family = Family("x", FamilyKind.GAUGE, "".join(words))
    for word in words:
        family.put(labels_text({"word": word}), value)
    (read,) = plain_text(page([family], Text.PLAIN).decode())
    assert [sample.labels["word"] for sample in read.samples] == list(map(visible, words))
    assert all(sample.value == value for sample in read.samples)


def test_a_family_without_samples_is_its_header() -> None:
    """Nothing follows it."""
    empty = Family("x", FamilyKind.GAUGE, "What?")

    assert empty.text(Text.PLAIN) == "# HELP x What?\n# TYPE x gauge\n"
    assert page([], Text.OPEN_METRICS) == b"# EOF\n"


@pytest.mark.parametrize("value", [0.1, 1e300, 5e-324, -0.0, 2.0**53, 1 / 3])
def test_numbers_keep_all_their_digits(value: float) -> None:
    """What is read is what was written."""
    family = Family("x", FamilyKind.GAUGE, "What?")
    family.put("", value)
    (read,) = plain_text(page([family], Text.PLAIN).decode())

    assert math.copysign(1, read.samples[0].value) == math.copysign(1, value)
    assert read.samples[0].value == value


def test_labels_are_escaped() -> None:
    """As the exposition format states."""
    assert labels_text({"a": 'q"\n\\'}) == 'a="q\\"\\n\\\\"'


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L", "Co"])))
@example("\x1b]52;c;eA==\x07")
@example(r"\u001b\u005cu001b \U000e0001 \\u001b")
@example("\\\x1b\\u00\x1b1b\U000e0001\u202e\x9b\ud800\r")
def test_a_label_steers_no_terminal_and_stays_itself(value: str) -> None:
    """What could steer is escaped, and undoing the escapes gives back the value."""
    family = Family("x", FamilyKind.GAUGE, "What?")
    family.put(labels_text({"a": value}), 1.0)
    written = page([family], Text.PLAIN).decode()
    (read,) = plain_text(written)
    label = read.samples[0].labels["a"]

    assert {unicodedata.category(letter) for letter in written.replace("\n", "")}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )
    escapes = r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))"
    assert re.sub(escapes, lambda found: chr(int(found[1] or found[2], 16)), label) == value


def test_an_exemplar_is_as_long_as_what_is_written() -> None:
    """Escapes count, so that no scraper rejects the page."""
    assert exemplar_text({"a": "\x1b" * 21}, 1.0, 1.0) is not None
    assert exemplar_text({"a": "\x1b" * 22}, 1.0, 1.0) is None


PLAIN = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_1 = "text/plain; version=1.0.0; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("text/html", PLAIN),
        ("text/plain;version=0.0.4", PLAIN),
        ("text/plain;version=1.0.0", f"{PLAIN_1}; escaping=underscores"),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", f"{PLAIN_1}; escaping=allow-utf-8"),
        ("text/plain;version=1.0.0;escaping=dots", f"{PLAIN_1}; escaping=underscores"),
        ("application/openmetrics-text", f"{OPEN}; escaping=underscores"),
        ("application/openmetrics-text;version=1.0.0", f"{OPEN}; escaping=underscores"),
        ("application/openmetrics-text; version=1.0.0; escaping=values", f"{OPEN}; escaping=values"),
        ("application/openmetrics-text;version=2.0.0", PLAIN),
        (
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text; version=0.0.1; charset=utf-8",
        ),
        ("application/openmetrics-text;version=1.0.0;q=0,text/plain", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.6", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=x,text/plain;version=0.0.4;q=0.1", PLAIN),
        (
            # What Prometheus 2.42 sends.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            ),
            f"{OPEN}; escaping=underscores",
        ),
        (
            # What Prometheus 3 sends.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                "application/openmetrics-text;version=0.0.1;q=0.5,"
                "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
            ),
            f"{OPEN}; escaping=allow-utf-8",
        ),
    ],
)
def test_negotiation(accept: str, content_type: str) -> None:
    """The answer names its format and, from 1.0 on, its escaping."""
    assert choose(accept).content_type == content_type


@pytest.mark.parametrize(
    ("header", "expected"),
    [("", False), ("gzip", True), ("br, GZIP;q=0.1", True), ("gzip; q=0", False), ("gzip;q=0.000", False),
     ("identity", False)],
)  # fmt: skip
def test_accepting_gzip(header: str, *, expected: bool) -> None:
    """A weight of 0 refuses."""
    assert accepts_gzip(header) is expected
