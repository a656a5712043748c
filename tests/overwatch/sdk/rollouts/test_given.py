"""What of a rollout can be taken is taken; every other column is refused by name, and nothing raises."""

import re
from typing import Any

import numpy as np
import pytest

from overwatch.catalog import Scope
from overwatch.events import ActionTaken, EpisodeEnded, GateEvaluated, Measured
from overwatch.sdk import WordTables
from overwatch.sdk.rollouts.columns import KNOWN, word_tables
from tests.overwatch.sdk.rollouts.local import Local, local, measured
from tests.overwatch.sdk.rollouts.world import WORDS, World

T, N, K = 4, 3, 3
ZEROS = np.zeros((T, N))


def report(one: Local, **columns: Any) -> None:
    """A rollout of a few steps."""
    one.run.rollout(first_step=1, steps=T, envs=N, at_first=1e9 + 1, at_last=1e9 + 2, **columns)


BAD = {
    "too few steps": ("metric", np.zeros((T - 1, N)), r"shape \(3, 3\), not \(4, 3\)"),
    "too many envs": ("metric", np.zeros((T, N + 1)), r"not \(4, 3\)"),
    "one value": ("metric", np.zeros(()), r"shape \(\), not"),
    "slots of an env number": ("metric", np.zeros((T, N, K)), r"not \(4, 3\)"),
    "no slots": ("slot_alpha", ZEROS, r"\(4, 3, 3\): steps, envs and a value a slot"),
    "too many heads": ("actions", np.zeros((T, N, 9), int), r"\(4, 3, 3\): .* head of an env's action"),
    "a list": ("metric", ZEROS.tolist(), "a list is no table; pass a tensor or an array"),
    "nothing": ("metric", None, "a NoneType is no table"),
    "text": ("metric", np.full((T, N), "x"), "is not of numbers"),
    "objects": ("metric", np.full((T, N), None), "is not of numbers"),
    "complex": ("metric", ZEROS.astype(complex), "is not of numbers"),
    "masked": ("metric", np.ma.masked_array(ZEROS, ZEROS == 0), "fill it first"),
    "codes as floats": ("op", ZEROS, "is not of whole numbers or truths"),
    "ends as floats": ("terminated", ZEROS, "is not of whole numbers or truths"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_column_that_cannot_be_taken_is_refused_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reason names the column, what it has and what it needs; the others of the call arrive."""
    name, value, why = BAD[kind]
    with local(WORDS) as one:
        report(one, reward=ZEROS, **{name: value})
        found = measured(one.events(), Scope.ENV)
        assert [set(event.values) for event in found] == [{"overwatch.env.reward"}] * T
        assert one.run._channel.refused == 1
    assert re.search(f"{name}: .*{why}", caplog.text), caplog.text


NEEDS = {
    "op": "heads", "slot": "heads", "blueprint": "heads", "actions": "heads", "gate": "gates",
    "slot_reason": "reasons", "slot_blueprint": "blueprints", "gate_slot": "slots",
    "op_probs": "heads", "second": "heads", "third": "heads",
    "slot_style": "styles", "slot_curve": "curves", "slot_tempo": "tempos",
    "governor": "panics",
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDS)
def test_codes_without_a_table_of_words_are_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reason names the table that is missing, and where it is given."""
    with local() as one:
        report(one, reward=ZEROS, **{name: np.zeros((T, N), int)})
        assert len(measured(one.events(), Scope.ENV)) == T
        assert one.run._channel.refused == 1
    assert (
        f"{name}: no words for its codes; give them once: start(words=WordTables({NEEDS[name]}="
        in caplog.text
    )


def test_every_code_names_the_table_it_needs() -> None:
    """The table of columns and the table above are about the same columns."""
    codes = {name for name, known in KNOWN.items() if known.words is not None}
    assert codes == {*NEEDS, "slot_stage"}
    fields = WordTables.__struct_fields__
    assert all(KNOWN[name].needs in (*fields, "stages") for name in codes)


def test_slots_of_a_run_without_slots_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Their names come with the start."""
    with local() as one:
        report(one, reward=ZEROS, slot_alpha=np.zeros((T, N, K)))
        assert (len(one.events()), one.run._channel.refused) == (T, 1)
    assert "slot_alpha: a run without slots; name them once: start(slots=[...])" in caplog.text


@pytest.mark.parametrize("code", [-2, 3, 255, 70_000, -(1 << 40)])
def test_a_code_without_a_word_is_absent_and_its_neighbours_keep_theirs(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It never becomes another word, however large it is."""
    op = np.ones((T, N), "i8")
    op[1, 2] = code
    with local(WORDS) as one:
        report(one, op=op)
        actions = [event for event in one.events() if isinstance(event, ActionTaken)]
        assert one.run._channel.refused == 1
    assert actions[1].op.words() == ["germinate", "germinate", None]
    assert all(event.op.words() == ["germinate"] * N for event in (actions[0], *actions[2:]))
    assert f"op: 1 codes, e.g. {code}, have no word: 3 are known" in caplog.text


CALLS = [
    {"steps": 0}, {"steps": -1}, {"steps": "x"}, {"steps": 1.5}, {"envs": 0}, {"first_step": 0},
    {"env_first": -1}, {"at_first": 1e9 + 3}, {"at_first": float("nan")}, {"at_first": -1.0},
    {"at_first": 12.5}, {"at_first": None}, {"at_last": float("inf")}, {"at_last": 1e10},
]  # fmt: skip


@pytest.mark.parametrize("odd", CALLS, ids=str)
def test_a_rollout_of_no_steps_or_times_is_dropped_and_counted(
    odd: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The call as a whole names the steps: without that none is sent, and the next one is."""
    usual = {"first_step": 1, "steps": T, "envs": N, "at_first": 1e9 + 1, "at_last": 1e9 + 2, "reward": ZEROS}
    with local() as one:
        one.run.rollout(**(usual | odd))
        assert one.events() == []
        assert one.link.rings.account().dropped == {"invalid": 1}
        one.run.rollout(**usual)
        assert len(one.events()) == T
    assert "run.rollout: RefusedError" in caplog.text


def test_parts_that_need_another_column_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Ends without returns, returns without ends, gates without slots: absent, with the reason."""
    ends = np.ones((T, N), bool)
    with local(WORDS) as one:
        report(one, terminated=ends, reward=ZEROS)
        report(one, episode_return=ZEROS, reward=ZEROS)
        report(one, gate=np.ones((T, N), int), reward=ZEROS)
        events = one.events()
        assert not [event for event in events if isinstance(event, EpisodeEnded | GateEvaluated)]
        assert (len(measured(events, Scope.ENV)), one.run._channel.refused) == (3 * T, 3)
    assert "gate: a gate needs gate_passed and gate_slot too" in caplog.text
    assert "episode_return: ends of episodes without what they returned" in caplog.text


def test_columns_of_many_types_keep_their_values() -> None:
    """Numbers keep their type where it travels; a truth is 0 or 1, half precision is widened exactly."""
    values = np.arange(T * N).reshape(T, N)
    types = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", ">f8", ">i4", "?")
    with local() as one:
        report(one, **{f"c{number}": values.astype(dtype) for number, dtype in enumerate(types)})
        found = measured(one.events(), Scope.ENV)
    for row, event in enumerate(found):
        for number, dtype in enumerate(types):
            column = event.values[f"overwatch.custom.c{number}"]
            assert column.array().tolist() == values[row].astype(dtype).tolist(), dtype
    kept = {dtype: found[0].values[f"overwatch.custom.c{number}"].dtype for number, dtype in enumerate(types)}
    assert kept["f4"] == kept["f2"] == "<f4"
    assert (kept["?"], kept[">f8"], kept["u8"]) == ("|u1", "<f8", "<i8")


def test_absent_columns_stay_absent() -> None:
    """A batched world has no step time and no crashes: neither is made up."""
    world = World(2)
    columns = world.rollout(5)
    with local(WORDS) as one:
        world.report(one.run, {"reward": columns["reward"]})
        events = one.events()
    assert all(
        isinstance(event, Measured) and set(event.values) == {"overwatch.env.reward"} for event in events
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (7, "int"),
        ({"heads": 3}, "heads"),
        (
            {"heads": [("op", ["a", "b"])], "uses": [[True]]},
            "uses needs 2 rows, one an operation, of 1 entries",
        ),
        ({"heads": [("op", ["a"])], "uses": [[True, True]]}, "uses needs 1 rows"),
        ({"slots": [str(number) for number in range(40_000)]}, "more than 32767 words"),
        ({"nothing": 1}, "nothing"),
    ],
)
def test_tables_that_do_not_fit_are_refused_with_the_fix(value: object, why: str) -> None:
    """Never half of them."""
    with pytest.raises(ValueError, match=why):
        word_tables(value)


def test_tables_may_be_a_mapping() -> None:
    """The same names as of the struct; text that is none is made text."""
    assert word_tables({"heads": [["op", ["a", "b"]]]}) == WordTables(heads=(("op", ("a", "b")),))
