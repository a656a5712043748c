"""Prometheus names by the translator's rules: a file of cases, and labels."""

import dataclasses
from pathlib import Path

import pytest

from overwatch.catalog import CUSTOM_PREFIX, KL, Kind, head_of, label_name, prometheus_name

VECTORS = [
    line.split("|")
    for line in Path(__file__).with_name("prometheus_names.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("name", "unit", "kind", "expected"), VECTORS)
def test_a_name_is_the_translators(name: str, unit: str, kind: str, expected: str) -> None:
    """Unit, `_ratio` and `_total` where they belong; nothing twice."""
    assert prometheus_name(dataclasses.replace(KL, name=name, unit=unit, kind=Kind(kind))) == expected


@pytest.mark.parametrize(
    ("attribute", "label"),
    [
        ("rl.run.id", "rl_run_id"),
        ("http.method", "http_method"),
        ("a..b", "a__b"),
        ("a:b", "a_b"),
        ("2xx", "key_2xx"),
        ("_hidden", "key_hidden"),
        ("__reserved__", "__reserved__"),
        ("with space", "with_space"),
    ],
)
def test_a_label_is_the_translators(attribute: str, label: str) -> None:
    """Labels do not begin with a digit or a single underscore."""
    assert label_name(attribute) == label


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("entropy/op", ("entropy", "op")),
        (f"{CUSTOM_PREFIX}kl_divergence/slot/a", ("kl_divergence", "slot/a")),
        ("grad_norm/op", ("grad_norm", "op")),
        ("ratio_max/op", ("ratio_max", "op")),
        ("entropy/", None),
        ("entropy", None),
        ("action/op", None),
        ("value_loss/op", None),
    ],
)
def test_a_number_of_a_head_is_known_by_its_row(name: str, found: tuple[str, str] | None) -> None:
    """Of rows that have parts alone; other names with a slash are the trainer's own."""
    part = head_of(name)

    assert (None if part is None else (part[0].short, part[1])) == found
