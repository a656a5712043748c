"""What a policy may do: eight heads, and which of them an operation depends on."""

from overwatch_rl.worlds.morphogenesis.actions import (
    ALGORITHMS,
    ALPHA_SPEEDS,
    ALPHA_TARGETS,
    BLEND_CURVES,
    HEADS,
    TEMPOS,
    USES,
    Curve,
    Op,
    Style,
    action_spec,
    slot_names,
)

BLUEPRINTS = ("noop", "small", "wide")


def test_eight_heads_in_their_order_and_sizes() -> None:
    """Slots and blueprints are as many as there are, all others are fixed."""
    spec = action_spec(4, BLUEPRINTS)

    assert [(head.name, len(head.labels)) for head in spec.heads] == [
        ("op", 6), ("slot", 4), ("blueprint", 3), ("style", 4), ("tempo", 3), ("alpha_target", 3),
        ("alpha_speed", 4), ("alpha_curve", 5),
    ]  # fmt: skip
    assert spec.heads[0].labels == (
        "wait", "germinate", "set_alpha_target", "prune", "fossilise", "advance",
    )  # fmt: skip
    assert spec.heads[2].labels == BLUEPRINTS


def test_an_operation_depends_on_the_heads_that_change_what_it_does() -> None:
    """The causal table, a row an operation."""
    spec = action_spec(1, BLUEPRINTS)
    used = {
        op.name: [name for name, is_used in zip(HEADS, spec.uses[op], strict=True) if is_used] for op in Op
    }

    assert used == {
        "WAIT": ["op"],
        "GERMINATE": ["op", "slot", "blueprint", "style", "tempo", "alpha_target"],
        "SET_ALPHA_TARGET": ["op", "slot", "style", "alpha_target", "alpha_speed", "alpha_curve"],
        "PRUNE": ["op", "slot", "alpha_speed", "alpha_curve"],
        "FOSSILISE": ["op", "slot"],
        "ADVANCE": ["op", "slot"],
    }


def test_every_choice_has_its_number() -> None:
    """A style has an algorithm and a curve; tempos and speeds are steps, targets are shares."""
    assert set(USES) == set(Op)
    assert dict(zip(Style, zip(ALGORITHMS, BLEND_CURVES, strict=True), strict=True)) == {
        Style.LINEAR_ADD: (0, Curve.LINEAR),
        Style.LINEAR_MULTIPLY: (1, Curve.LINEAR),
        Style.SIGMOID_ADD: (0, Curve.SIGMOID),
        Style.GATED: (2, Curve.LINEAR),
    }
    assert [steps for _, steps in TEMPOS] == [3, 5, 8]
    assert [steps for _, steps in ALPHA_SPEEDS] == [0, 3, 5, 8]
    assert ALPHA_TARGETS == (0.5, 0.7, 1.0)


def test_slots_are_named_by_row_and_column() -> None:
    """Three to a row."""
    assert slot_names(5) == ("r0c0", "r0c1", "r0c2", "r1c0", "r1c1")
