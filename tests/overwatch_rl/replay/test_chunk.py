"""Chunks and encodings: every length and value is checked, decoding copies nothing."""

from random import Random

import msgspec
import numpy as np
import pytest

from overwatch_rl.replay.chunk import Bytes, Chunk, Column, Encoding, encode

ENCODING = Encoding(
    (
        Column("observation", "float32", (2, 3)),
        Column("action", "int64"),
        Column("done_mask", "bool", (2,)),
        Column("final_observation", "float32", (2, 3), per_step=False),
    )
)


def chunk(steps: int = 4, **changes: object) -> Chunk:
    """A chunk that was cut."""
    arrays = {
        "observation": np.arange(steps * 6, dtype=np.float32).reshape(steps, 2, 3),
        "action": np.arange(steps),
        "done_mask": np.ones((steps, 2), np.bool_),
        "final_observation": np.full((2, 3), 9, np.float32),
    }
    made = Chunk(
        run="r",
        env="e",
        episode=3,
        first_step=8,
        steps=steps,
        lineage=1,
        version=7,
        end="cut",
        columns=encode(arrays, ENCODING),
    )
    return msgspec.structs.replace(made, **changes)


def without(name: str, **changes: Bytes) -> dict[str, Bytes]:
    """The columns of a chunk but one, others in its place."""
    columns = dict(chunk().columns)
    del columns[name]
    return columns | changes


def test_decoding_copies_nothing() -> None:
    """The arrays lie over the bytes of the chunk, in their dtype and shape."""
    data = {name: bytes(column) for name, column in chunk().columns.items()}
    decoded = ENCODING.decode(chunk(columns=data))

    assert decoded["observation"].shape == (4, 2, 3)
    assert decoded["observation"][1].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert decoded["action"].tolist() == [0, 1, 2, 3]
    assert decoded["final_observation"].shape == (2, 3)
    assert all(
        decoded[name].__array_interface__["data"][0] == np.frombuffer(column, np.uint8).ctypes.data
        for name, column in data.items()
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"columns": without("action")}, "column 'action' of a chunk of 'e' is missing"),
        (
            {"columns": without("final_observation")},
            "column 'final_observation' of a chunk of 'e' is missing",
        ),
        (
            {"columns": without("action", action=bytes(31))},
            "column 'action' has 31 bytes; 4 steps .* have 32",
        ),
        (
            {"columns": without("action", action=bytes(33))},
            "column 'action' has 33 bytes; 4 steps .* have 32",
        ),
        (
            {"columns": dict(chunk().columns) | {"other": b""}},
            "column 'other' of a chunk of 'e': the encoding has none",
        ),
        (
            {"columns": without("done_mask", done_mask=bytes(7) + b"\2")},
            "'done_mask' of bool .* neither 0 nor 1",
        ),
        (
            {"columns": without("final_observation", final_observation=bytes(23))},
            "column 'final_observation' has 23 bytes; one row have 24",
        ),
        ({"end": "terminated"}, "column 'final_observation' .* an episode that terminated has none"),
        ({"end": "over"}, "end of a chunk of 'e' is 'over', none of terminated, truncated, cut"),
        ({"steps": 0}, "steps of a chunk of 'e' is 0"),
        ({"first_step": -1}, "first_step of a chunk of 'e' is -1"),
        ({"version": 1 << 63}, "version of a chunk of 'e' is 9223372036854775808"),
        ({"env": ""}, "env of a chunk is empty"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, object], expected: str) -> None:
    """Column or field, what it has and what is expected."""
    with pytest.raises(ValueError, match=expected):
        ENCODING.decode(chunk(**changes))


def test_a_terminated_episode_has_no_final_observation() -> None:
    """It is complete without one."""
    found = chunk(end="terminated", columns=without("final_observation"))

    assert "final_observation" not in ENCODING.decode(found)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (("Action", "int64"), "column 'Action': a name is"),
        (("action", "int65"), "dtype 'int65' is none of"),
        (("action", "object"), "dtype 'object' is none of"),
        (("action", "int64", (0,)), r"shape \(0,\)"),
        (("action", "int64", (1,) * 9), "is not up to 8 sizes"),
        (("action", "int64", (1 << 40,)), "a row of 8796093022208 bytes"),
    ],
)
def test_a_column_that_is_none_is_named(column: tuple[str, str], expected: str) -> None:
    """Names, dtypes and shapes that nobody can decode."""
    with pytest.raises(ValueError, match=expected):
        Column(*column)


def test_a_final_observation_is_like_an_observation() -> None:
    """Another shape, or one a step, is refused; so is a column twice."""
    observation, final = ENCODING.by_name["observation"], ENCODING.by_name["final_observation"]
    for wrong in (
        (final,),
        (observation, msgspec.structs.replace(final, per_step=True)),
        (observation, msgspec.structs.replace(final, shape=(6,))),
        (observation, observation),
        (),
    ):
        with pytest.raises(ValueError, match=r"an encoding|final_observation"):
            Encoding(wrong)


def test_the_hash_is_that_of_the_columns() -> None:
    """It is the same after a way over the wire, and another one for any other column or order."""
    again = msgspec.json.decode(msgspec.json.encode(ENCODING), type=Encoding)
    others = {
        Encoding(ENCODING.columns[:-1]).hash,
        Encoding(ENCODING.columns[::-1]).hash,
        Encoding(
            (msgspec.structs.replace(ENCODING.columns[0], dtype="float16"), *ENCODING.columns[1:3])
        ).hash,
    }

    assert again.hash == ENCODING.hash == "bf7fec0e8cec3166a34b616bed6ab552"
    assert len(others | {ENCODING.hash}) == 4


def test_nothing_is_converted_silently() -> None:
    """An array of another dtype or shape is refused; one of another byte order is turned."""
    with pytest.raises(ValueError, match=r"column 'action' has rows of int32 \(\), the encoding int64 \(\)"):
        encode({"action": np.zeros(4, np.int32)}, ENCODING)
    with pytest.raises(ValueError, match="column 'reward': the encoding has none"):
        encode({"reward": np.zeros(4)}, ENCODING)
    big = encode({"action": np.arange(3, dtype=">i8")}, ENCODING)["action"]

    assert np.frombuffer(big, "<i8").tolist() == [0, 1, 2]


def fuzz(rounds: int) -> int:
    """Chunks of random columns, lengths and headers; how many decode."""
    chance = Random(rounds)  # noqa: S311 a test's own chance
    decoded = 0
    names = ["observation", "action", "done_mask", "final_observation", "other", ""]
    for _ in range(rounds):
        size = chance.choice([0, 1, 24, 32, 96, chance.randrange(200)])
        columns: dict[str, Bytes] = dict(chunk(chance.choice([4, 4, 4, 5])).columns)
        if chance.random() < 0.8:
            columns[chance.choice(names)] = chance.randbytes(size)
        if chance.random() < 0.3:
            columns.pop(chance.choice(names), None)
        steps = chance.choice([4, 4, 4, 0, -1, 5, 1 << 40, 1 << 70])
        end = chance.choice(["cut", "truncated", "terminated", "no"])
        given = msgspec.structs.replace(chunk(), end=end, columns=columns, steps=steps)
        try:
            arrays = ENCODING.decode(given)
        except ValueError:
            continue
        decoded += 1
        for name, array in arrays.items():
            assert array.nbytes == memoryview(columns[name]).nbytes
            assert array.tobytes() == bytes(columns[name])
    return decoded


def test_decoding_never_reads_out_of_bounds() -> None:
    """Whatever comes decodes to exactly its bytes or is a `ValueError`."""
    assert 20 < fuzz(3_000) < 2_000


@pytest.mark.long
def test_decoding_never_reads_out_of_bounds_for_long() -> None:
    """The same, for a million chunks."""
    assert fuzz(1_000_000) > 10_000
