"""Rows keep the rules that names, units and limits have to keep."""

import re

import pytest

from overwatch.catalog import (
    KL,
    ROWS,
    Kind,
    Metric,
    Scope,
    Side,
    Stage,
    aliases_of,
    find,
    parse_stage,
    prometheus_name,
)
from overwatch.catalog.metric import Limit
from overwatch.catalog.stages import BY_CODE, TRANSITIONS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_name_has_no_word_that_translation_would_eat(row: Metric) -> None:
    """No token `ratio`, no ending in count, sum, total or info: Prometheus gives those a meaning."""
    words = re.split(r"[._]", row.name)

    assert "ratio" not in words
    assert words[-1] not in {"count", "sum", "total", "info"}
    assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", row.name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_answers_a_question_and_fits_the_screen(row: Metric) -> None:
    """Every row states what it asks, and its label fits eight cells."""
    assert row.asks.endswith("?")
    assert 0 < len(row.label) <= 8


def test_names_are_unique_everywhere() -> None:
    """No two rows share a name, a short name in a scope, a Prometheus name or an alias."""
    meant = {
        (row.scope, a.name, *a.attributes.values(), row.name)
        for row in ROWS
        for a in aliases_of(row)
        if not a.is_bare
    }
    aliases = [spelling[:-1] for spelling in meant]
    names = [row.name for row in ROWS]
    shorts = [(row.scope, row.short) for row in ROWS]
    exposed = [prometheus_name(row) for row in ROWS]

    assert len(set(names)) == len(names)
    assert len(set(shorts)) == len(shorts)
    assert len(set(exposed)) == len(exposed)
    assert len(set(aliases)) == len(aliases)
    assert not {name for _scope, name, *_ in aliases} & set(names)


def test_kl_is_tele_110_to_the_letter() -> None:
    """Healthy up to and with 0.015, critical only above 0.03, four decimals, three in the banner."""
    assert KL.tele == ("TELE-110",)
    assert KL.unit == "{nat}"
    assert KL.limits.warning == Limit(side=Side.ABOVE, value=0.015)
    assert KL.limits.critical == Limit(side=Side.ABOVE, value=0.03)
    assert (KL.fmt, KL.banner_fmt) == (".4f", ".3f")
    for preset in ("ppo", "ppo-continuous", "grpo", "esper"):
        assert KL.limits_for(preset) == KL.limits


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("a.b", "1", Kind.GAUGE, "a_b_ratio"),
        ("a.b", "1", Kind.COUNTER, "a_b_total"),
        ("a.b", "s", Kind.GAUGE, "a_b_seconds"),
        ("a.seconds", "s", Kind.GAUGE, "a_seconds"),
        ("a.b", "By/s", Kind.GAUGE, "a_b_bytes_per_second"),
        ("a.b", "{loss}", Kind.GAUGE, "a_b"),
        ("a.b", "{update}", Kind.COUNTER, "a_b_total"),
        ("a.b", "Cel", Kind.GAUGE, "a_b_celsius"),
        ("a.b", "{x}/s", Kind.GAUGE, "a_b_per_second"),
        ("1a.b", "W", Kind.GAUGE, "_1a_b_watts"),
    ],
)
def test_prometheus_names_follow_the_translator(name: str, unit: str, kind: Kind, expected: str) -> None:
    """Suffixes by unit and kind, never doubled."""
    row = Metric(name=name, short="x", kind=kind, unit=unit, scope=Scope.RUN, asks="?", label="x")

    assert prometheus_name(row) == expected


def test_a_row_is_found_by_name_short_name_and_alias() -> None:
    """Three spellings lead to one row, and an unknown one to none."""
    assert find("overwatch.policy.kl_divergence") is KL
    assert find("kl_divergence", Scope.POLICY) is KL
    assert find("train/approx_kl") is KL
    assert find("kl_divergence", Scope.ENV) is None
    assert find("nonsense") is None


def test_every_stage_has_its_own_glyphs() -> None:
    """A stage can be recognised without colour, in Unicode and in ASCII."""
    assert len({stage.glyph for stage in Stage}) == len(Stage)
    assert len({stage.ascii for stage in Stage}) == len(Stage)
    assert [stage.code for stage in BY_CODE] == list(range(len(Stage)))


def test_the_lifecycle_is_closed() -> None:
    """Every stage states what may follow, and only the fossil has no successor."""
    assert set(TRANSITIONS) == set(Stage)
    assert [stage for stage, after in TRANSITIONS.items() if not after] == [Stage.FOSSILISED]


def test_the_other_names_of_stages_are_read() -> None:
    """The words of the original system mean the same stages."""
    assert parse_stage("Probationary") is Stage.HOLDING
    assert parse_stage("CULLED") is Stage.PRUNED
    assert parse_stage("fossilized") is Stage.FOSSILISED
    assert parse_stage("???") is Stage.UNKNOWN
