"""The page's types state what the view API sends: every field, `null` where it may be, nothing else."""

import msgspec
import pytest

from overwatch.generate.page_types import TypeScriptError, declarations, page_types


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """A part.

    Of a whole.
    """

    name: str


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page may meet."""

    number: int = 3
    absent: float | None = None
    shown: str = msgspec.field(default="", name="return")
    flags: tuple[bool | None, ...] = ()
    ends: tuple[float, float] | None = None
    parts: dict[str, tuple[Leaf, ...]] = {}


class Terse(msgspec.Struct, frozen=True, omit_defaults=True):
    """It leaves out what is as usual."""

    at: float
    note: str | None = None


def test_every_field_is_there_and_null_where_it_may_be() -> None:
    """The encoder writes defaults too, so a field with one is as present as any other."""
    assert declarations(Whole) == (
        "/** A part. */\n"
        "export interface Leaf {\n"
        "  readonly name: string;\n"
        "}\n\n"
        "/** Everything that the page may meet. */\n"
        "export interface Whole {\n"
        "  readonly number: number;\n"
        "  readonly absent: number | null;\n"
        "  readonly return: string;\n"
        "  readonly flags: readonly (boolean | null)[];\n"
        "  readonly ends: readonly [number, number] | null;\n"
        "  readonly parts: Readonly<Record<string, readonly Leaf[]>>;\n"
        "}\n"
    )


def test_what_an_encoder_leaves_out_is_optional() -> None:
    """Only a struct that omits its defaults has fields that may be missing."""
    assert "  readonly at: number;\n  readonly note?: string | null;\n" in declarations(Terse)


def test_a_type_without_a_rule_is_refused_by_name() -> None:
    """Rather than written as `any`."""

    class Odd(msgspec.Struct):
        """One that JSON has no word for."""

        raw: bytes

    with pytest.raises(TypeScriptError, match=r"Odd\.raw.*Bytes"):
        declarations(Odd)


def test_what_the_view_api_answers_is_declared() -> None:
    """Snapshots, the past, the list of runs, with all that is in them."""
    text = page_types()

    for name in ("Snapshot", "History", "RunList", "Reading", "Env", "Curve", "Finding"):
        assert f"export interface {name} {{" in text
    assert "readonly policy: Readonly<Record<string, Reading>>;" in text
    assert "readonly return: number | null;" in text
