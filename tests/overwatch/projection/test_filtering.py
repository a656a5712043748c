"""The filter grammar: what is read, and what is reported of what cannot be read."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.projection.filtering import FilterError, Term, parse


def test_terms_are_read_in_order() -> None:
    """Keys, comparisons, negation, quotes, free words."""
    terms = parse('status=degraded gpu=0,1 !blueprint=noop score>=3.5 "cuda error" cull')

    assert terms == (
        Term(key="status", sign="=", values=("degraded",)),
        Term(key="gpu", sign="=", values=("0", "1")),
        Term(key="blueprint", sign="=", values=("noop",), negated=True),
        Term(key="score", sign=">=", values=("3.5",)),
        Term(key=None, sign="=", values=("cuda error",)),
        Term(key=None, sign="=", values=("cull",)),
    )
    assert terms[3].number == 3.5
    assert parse("   ") == ()


def test_the_beginning_of_a_known_word_is_enough() -> None:
    """So that the board filters while the word is typed; other names of a stage mean the stage."""
    assert parse("status=d")[0].values == ("degraded", "diverging")
    assert parse("stage=culled")[0].values == ("pruned",)
    assert parse("STATUS=Crashed")[0].values == ("crashed",)


def test_env_ids_are_single_or_ranges() -> None:
    """First and last id of each value."""
    assert parse("env=3,9-12")[0].ranges == ((3, 3), (9, 12))


@pytest.mark.parametrize(
    ("text", "term", "suggestion"),
    [
        ("status=ok stge=pruned", "stge=pruned", "stage="),
        ("gpo=1", "gpo=1", "gpu="),
        ("status=degarded", "status=degarded", "status=degraded"),
        ("scor>3", "scor>3", "score>"),
        ("score=3", "score=3", "score>"),
        ("status>3", "status>3", "status="),
        ("zzz=1", "zzz=1", None),
        ("score>x", "score>x", None),
        ("score>nan", "score>nan", None),
        ("env=a", "env=a", None),
        ("gpu=", "gpu=", None),
        ("!", "!", None),
        ("stage=qq", "stage=qq", None),
    ],
)
def test_what_cannot_be_read_is_named_with_what_was_meant(
    text: str, term: str, suggestion: str | None
) -> None:
    """The error carries the term and the nearest known spelling."""
    with pytest.raises(FilterError) as caught:
        parse(text)

    assert (caught.value.term, caught.value.suggestion) == (term, suggestion)
    assert suggestion is None or f"did you mean {suggestion}?" in str(caught.value)


def test_a_run_without_slots_knows_no_keys_of_slots() -> None:
    """Neither as keys nor as suggestions."""
    for text in ("slot=r0c0", "stage=pruned", "stge=pruned", "blueprint=x"):
        with pytest.raises(FilterError) as caught:
            parse(text, slots=False)
        stated = str(caught.value).replace(text.partition("=")[0], "")
        assert not any(word in stated for word in ("slot", "stage", "blueprint"))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else is raised, and what is read has values in all terms."""
    with contextlib.suppress(FilterError):
        assert all(term.values for term in parse(text))
