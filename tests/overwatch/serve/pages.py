"""Pages of metrics made of frames and read by a parser of their format, for the tests of what is on them."""

from prometheus_client.parser import text_string_to_metric_families as plain_text

from overwatch.aggregator import Frame
from overwatch.serve.exposition import page as rendered
from overwatch.serve.prometheus import PageLimits, RunPage

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


ABOUT = (
    "overwatch_prometheus_series", "overwatch_prometheus_series_limit", "overwatch_prometheus_series_dropped",
    "overwatch_prometheus_dropped_series_total",
)  # fmt: skip
"""What the page states of itself."""
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(frame: Frame | None, accept: str = "", limits: PageLimits | None = None) -> str:
    """The page of a frame."""
    return rendered(RunPage(limits).families(frame), accept)[0].decode()


def read(frame: Frame | None, limits: PageLimits) -> Samples:
    """Values by name and labels, of a page with limits."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in plain_text(page(frame, limits=limits))
        for sample in family.samples
    }


def samples(frame: Frame | None) -> Samples:
    """Values by name and labels."""
    return read(frame, PageLimits())


def one(frame: Frame, name: str, /, **labels: str) -> float | None:
    """The value of one series of `run-1`."""
    return samples(frame).get((name, tuple(sorted({"rl_run_id": "run-1", **labels}.items()))))


def life(frame: Frame, limits: PageLimits | None = None) -> set[str]:
    """Names that the page has of `run-1`."""
    found = read(frame, limits or PageLimits())
    return {name for name, labels in found if ("rl_run_id", "run-1") in labels}
