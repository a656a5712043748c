"""The chart's schema and table follow from `values.yaml`."""

import json

import jsonschema
import pytest
import yaml

from overwatch.generate.chart import CHART, values, values_page, values_schema


def test_every_value_is_documented_and_in_the_schema() -> None:
    """In the order of the file; the table has them all."""
    held, page = list(values((CHART / "values.yaml").read_text())), values_page()

    assert len(held) > 50
    assert all(f"`{one.path}`" in page for one in held)


def test_a_value_without_a_comment_is_refused() -> None:
    """By its path."""
    with pytest.raises(ValueError, match=r"a\.c has no comment"):
        list(values("a:\n  # -- text\n  b: 1\n  c: 2\n"))


def test_the_schema_takes_the_defaults_and_every_values_file() -> None:
    """Those of `ci` too."""
    schema = json.loads(values_schema())
    jsonschema.Draft7Validator.check_schema(schema)

    for path in (CHART / "values.yaml", *sorted(CHART.glob("ci/*-values.yaml"))):
        jsonschema.validate(yaml.safe_load(path.read_text()) or {}, schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nosuch": 1}, {"image": {"name": "x"}}, {"replicas": 0}, {"image": {"digest": "sha256:0"}},
        {"collector": {"env": {"A": 1}}}, {"persistence": {"size": 5}}, {"tls": {"enabled": "yes"}},
        {"prometheusRule": {"runLength": "48h"}}, {"imagePullSecrets": [{"name": "x"}]},
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_not_a_value(wrong: dict[str, object]) -> None:
    """Unknown keys at any depth, wrong types, words that are no choice."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, json.loads(values_schema()))
