"""Which format a scraper is given."""

import pytest

from overwatch.serve.negotiation import accepts_gzip, choose

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
