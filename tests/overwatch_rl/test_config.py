"""What a training run says of its settings."""

from overwatch_rl.config import TrainFlags, train_settings


def test_a_run_declares_what_its_numbers_are_judged_by() -> None:
    """The tower is told the target KL and the norm at which gradients are clipped; not where files go."""
    flags = TrainFlags(
        world="morphogenesis", envs=2, slots=1, mode=None, settings=(), steps=8, updates=3, seconds=None, seed=0,
        lr=1e-3, epochs=1, minibatches=1, network=None, target_kl=0.02, threads=1, device="cpu", out=None,
        run_id=None, endpoint=None, telemetry=True,
    )  # fmt: skip
    described = train_settings(flags).described

    assert (described["target_kl"], described["max_grad_norm"], described["envs"]) == ("0.02", "0.5", "2")
    assert "out" not in described
