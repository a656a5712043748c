"""The grammar of rules: what is read, and what is refused with which words."""

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose.judging import SECOND_NS, RuleConfig, RuleError, hold_of, terms_of


def test_terms_are_named_in_full_or_by_scope() -> None:
    """Both names mean the same row; what no row knows has its custom name."""
    terms = terms_of(
        "overwatch.policy.kl_divergence > 0.05 and policy.kl_divergence>=1e-3 and overwatch.custom.depth < -2"
    )

    assert [term.name for term in terms[:2]] == ["overwatch.policy.kl_divergence"] * 2
    assert [(term.sign, term.number) for term in terms] == [(">", 0.05), (">=", 0.001), ("<", -2.0)]
    assert terms[2].scope is Scope.POLICY


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("policy.kl_divergance > 1", "did you mean policy.kl_divergence?"),
        ("policy.kl_divergence = 1", "a number is compared with one of >=, <=, >, <"),
        ("policy.kl_divergence > high", "compares policy.kl_divergence with 'high'; write a finite number"),
        ("policy.kl_divergence > nan", "write a finite number"),
        ("policy.kl_divergence", "a term is like policy.entropy < 0.2"),
        ("", "a term is like policy.entropy < 0.2"),
        ("env.reward < 0 and gpu.utilization < 0.2", "write one rule for each"),
        ("overwatch.slot.alpha > 1", "which rules cannot see"),
        (" and ".join(["policy.entropy < 1"] * 9), "a rule has at most 8"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_fix(where: str, words: str) -> None:
    """The message holds the part and what to write instead."""
    with pytest.raises(RuleError) as refused:
        terms_of(where)

    assert words in str(refused.value)


def test_lengths_are_times_or_updates() -> None:
    """Seconds, minutes, hours; updates where all terms come with them."""
    policy, host = terms_of("policy.entropy < 0.2"), terms_of("host.cpu_utilization > 0.9")

    assert hold_of("30s", host).ns == 30 * SECOND_NS
    assert hold_of("5 min", host).ns == 300 * SECOND_NS
    assert hold_of("1.5 hours", host).ns == 5400 * SECOND_NS
    assert hold_of("3 updates", policy).updates == 3


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ("3 updates", "does not come with updates; write e.g. 30s"),
        ("soon", "write e.g. 30s, 5 min or 3 updates"),
        ("-3s", "write e.g. 30s, 5 min or 3 updates"),
    ],
)
def test_a_length_that_cannot_be_is_refused(length: str, words: str) -> None:
    """Machines have no updates; words are no numbers."""
    with pytest.raises(RuleError) as refused:
        hold_of(length, terms_of("host.cpu_utilization > 0.9"))

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "Slow Learner"}, "has to be like slow-learner"),
        ({"severity": "fatal"}, "'fatal' is not one of critical, warning, info"),
        ({"hint": " "}, "hint has to state what to do"),
        ({"where": "policy.nope > 1"}, "rule slow: where names policy.nope"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_by_its_name(fields: dict[str, str], words: str) -> None:
    """Before any run is judged with it."""
    whole = {"name": "slow", "where": "policy.entropy < 0.2", "hint": "look", **fields}
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        RuleConfig(**whole)
