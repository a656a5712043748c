"""Bodies of groups: what is right is decoded, what is wrong is named by its path."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.rollouts.answers import Offer
from overwatch_rl.rollouts.validation import MOST_GROUPS, one, several
from overwatch_rl.web.faults import Fault, InvalidError

LONGEST = 4


def group(**changed: object) -> dict[str, Any]:
    """A right group of two sequences, with some keys changed."""
    return {"tokens": [[1, 2], [3]], "masks": [[-100, 2], [3]], "scores": [0.5, 1], **changed}


def fault_of(value: object, longest: int = LONGEST) -> Fault:
    """What is wrong with a group, sent as Python sends it."""
    found = one(json.dumps(value).encode(), longest)
    assert found.fault is not None
    return found.fault


def valid(value: object, longest: int = LONGEST) -> Offer:
    """A group that is right, sent as Python sends it."""
    found = one(json.dumps(value).encode(), longest)
    assert found.fault is None
    return found


@pytest.mark.parametrize(
    ("changed", "path", "stated"),
    [
        ({"scores": [1.0, float("nan")]}, "scores[1]", "NaN is no JSON number"),
        ({"scores": [float("-inf"), 1.0]}, "scores[0]", "-Infinity is no JSON number"),
        ({"advantages": [[1, 2], [float("inf")]]}, "advantages[1][0]", "Infinity is no JSON number"),
        ({"generation_params": {"top_p": float("nan")}}, "generation_params.top_p", "NaN is no JSON number"),
        ({"scores": [1.0]}, "scores", "has 1 rows for 2 sequences"),
        ({"scores": [1.0, None]}, "scores[1]", "score every sequence with a finite number"),
        ({"masks": [[1, 2]]}, "masks", "has 1 rows for 2 sequences"),
        ({"masks": [[1, 2], [3, 4]]}, "masks[1]", "has 2 values for 1 tokens"),
        ({"tokens": [[1, 2], []], "masks": [[1, 2], []]}, "tokens[1]", "is empty"),
        ({"tokens": [[1, 2], [1] * 5], "masks": [[1, 2], [1] * 5]}, "tokens[1]", "takes at most 4"),
        ({"tokens": [[1, -1], [3]]}, "tokens[0][1]", "Expected `int` >= 0: -1"),
        ({"tokens": [[1, 10**30], [3]]}, "tokens[0][1]", f"9223372036854775807: {10**30}"),
        ({"env_id": "x" * 100}, "env_id", ': "' + "x" * 59 + ";"),
        ({"tokens": [[1, 2.5], [3]]}, "tokens[0][1]", "Expected `int`, got `float`: 2.5"),
        ({"tokens": [], "masks": [], "scores": []}, "tokens", "length >= 1"),
        ({"advantages": [[1, 2]]}, "advantages", "has 1 rows for 2 sequences"),
        ({"ref_logprobs": [[1, 2], [1, 2]]}, "ref_logprobs[1]", "has 2 values for 1 tokens"),
        ({"inference_logprobs": [[1], [1]]}, "inference_logprobs[0]", "has 1 values for 2 tokens"),
        ({"messages": [[{"role": "user"}], []]}, "messages[0][0]", "missing required field `content`"),
        ({"overrides": [{}]}, "overrides", "has 1 rows for 2 sequences"),
        ({"env_id": "one"}, "env_id", "send the id that /register-env answered"),
    ],
)
def test_a_fault_is_named_by_its_path(changed: dict[str, object], path: str, stated: str) -> None:
    """The path of the field and what to send instead."""
    fault = fault_of(group(**changed))

    assert fault.path == path
    assert stated in fault.message


@pytest.mark.parametrize(
    "body", [b"", b"[1", b"\xff", b'{"tokens": [[1,]]}', b"[" * 100_000, b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_refused_whole(body: bytes) -> None:
    """A body that cannot be read names no field, as there is none."""
    found = one(body, LONGEST)

    assert found.fault is not None
    assert found == Offer(fault=found.fault)
    with pytest.raises(InvalidError) as caught:
        several(body, LONGEST)
    assert not caught.value.fault.path


def test_an_empty_body_is_called_empty() -> None:
    """A request without a body is no fault of JSON at character 0."""
    found = one(b"", LONGEST)

    assert found.fault is not None
    assert str(found.fault) == "body: is empty; send JSON"


def test_a_missing_field_is_named() -> None:
    """The message names the key, as there is no path to what is absent."""
    assert "missing required field `masks`" in fault_of({"tokens": [[1]]}).message


def test_empty_rows_are_absent_rows() -> None:
    """The published client sends empty lists where no sequence has such a row."""
    found = valid(group(advantages=[], ref_logprobs=[], messages=[], overrides=[]))

    assert (found.sequences, found.tokens) == (2, 3)


def test_no_limit_takes_any_length() -> None:
    """A trainer that states no longest sequence takes all."""
    assert valid(group(tokens=[[1] * 9, [3]], masks=[[1] * 9, [3]]), 0).tokens == 10


def test_a_refused_group_is_measured() -> None:
    """Its sender, its sequences and its tokens are counted, also where a literal stands in it."""
    body = json.dumps(group(scores=[float("nan"), 1], env_id=7)).encode()

    found = one(body, LONGEST)

    assert found.fault is not None
    assert (found.env_id, found.sequences, found.tokens) == (7, 2, 3)


def test_the_good_of_a_list_stay_good() -> None:
    """Groups beside one with a literal, one with ragged rows and one that is none keep their own bytes."""
    bodies = [
        json.dumps(value, indent=1)
        for value in (group(), group(scores=[float("nan"), 1]), group(masks=[[1]]), 7, group(scores=[3, 4]))
    ]
    found = several(f" [{' , '.join(bodies)}] ".encode(), LONGEST)

    good = [each for each in found if each.fault is None]
    assert [
        msgspec.json.decode(each.body) | json.loads(text)
        for each, text in zip(good, (bodies[0], bodies[4]), strict=True)
    ] == [json.loads(each.body) for each in good]
    assert [str(each.fault) for each in found if each.fault is not None] == [
        "[1].scores[0]: NaN is no JSON number; send a finite number, or leave the key out",
        "[2].masks: has 1 rows for 2 sequences; send one for each sequence of tokens",
        "[3]: Expected `object`, got `int`",
    ]


def test_a_list_has_a_limit() -> None:
    """One request cannot hold the server with millions of empty objects."""
    with pytest.raises(InvalidError, match=f"send at most {MOST_GROUPS}"):
        several(b"[" + b",".join([b"{}"] * (MOST_GROUPS + 1)) + b"]", LONGEST)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(["tokens", "masks", "scores", "advantages", "messages", "images", "x"]), value=ANY)
def test_any_value_is_taken_or_named(key: str, value: object) -> None:
    """No value breaks the server: the group is right, or the fault begins with the key that was changed."""
    body = json.dumps(group(**{key: value})).encode()
    found = one(body, LONGEST)
    if found.fault is None:
        assert json.loads(found.body).items() >= json.loads(body).items()
    else:
        path = found.fault.path
        assert path.startswith((key, "scores", "masks")) or not path
