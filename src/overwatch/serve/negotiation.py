"""Which format a scraper is given: by its `Accept` and `Accept-Encoding` headers.

Rules: what it weighs most is given, the newer format among equals; a scraper that names nothing gets text
0.0.4. Names here are valid in every scheme, so `escaping` is answered and changes nothing. Pure.
"""

from typing import Final, NamedTuple

from overwatch.serve.families import Text

_FORMS: Final = {
    ("application/openmetrics-text", "1.0.0"): Text.OPEN_METRICS,
    ("application/openmetrics-text", "0.0.1"): Text.OPEN_METRICS_0,
    ("application/openmetrics-text", ""): Text.OPEN_METRICS,
    ("text/plain", "1.0.0"): Text.PLAIN_1,
    ("text/plain", "0.0.4"): Text.PLAIN,
    ("text/plain", ""): Text.PLAIN,
}
_NEWER_FIRST: Final = (Text.OPEN_METRICS, Text.OPEN_METRICS_0, Text.PLAIN_1, Text.PLAIN)
_UNCHANGED: Final = ("allow-utf-8", "underscores", "values")
"""Escaping schemes that leave these names as they are; `dots` would not."""


class Chosen(NamedTuple):
    """What is answered."""

    form: Text
    content_type: str


class _Asked(NamedTuple):
    weight: float
    form: Text
    escaping: str


def choose(accept: str) -> Chosen:
    """The format for an `Accept` header.

    >>> choose("text/plain;version=0.0.4;q=0.5, application/openmetrics-text;version=1.0.0").form.name
    'OPEN_METRICS'
    """
    asked = [found for item in accept.split(",") if (found := _read(item)) is not None and found.weight > 0]
    if not asked:
        return Chosen(Text.PLAIN, Text.PLAIN.value)
    best = min(asked, key=lambda one: (-one.weight, _NEWER_FIRST.index(one.form)))
    escaping = best.escaping if best.escaping in _UNCHANGED else "underscores"
    versioned = best.form in (Text.OPEN_METRICS, Text.PLAIN_1)
    return Chosen(best.form, best.form.value + (f"; escaping={escaping}" if versioned else ""))


def _read(item: str) -> _Asked | None:
    """One item of an `Accept` header; `None` for what is not on offer."""
    media, *parameters = (part.strip() for part in item.split(";"))
    given = {key.strip().lower(): word.strip() for key, _, word in (p.partition("=") for p in parameters)}
    form = _FORMS.get((media.lower(), given.get("version", "")))
    return None if form is None else _Asked(_weight(given.get("q", "1")), form, given.get("escaping", ""))


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def accepts_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` header allows gzip; `gzip;q=0` does not.

    >>> accepts_gzip("deflate, gzip;q=0.5"), accepts_gzip("gzip;q=0")
    (True, False)
    """
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name == "gzip":
            weights = [p.replace(" ", "").removeprefix("q=") for p in parameters if p.startswith("q")]
            return _weight(weights[0] if weights else "1") > 0
    return False
