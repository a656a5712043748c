"""Settings of a run: what is refused, and what the message states."""

import pytest

from overwatch.simulate import Settings, SettingsError
from overwatch.simulate.faults import Planned


@pytest.mark.parametrize(
    ("wrong", "stated"),
    [
        ({"gpus": 0}, "gpus is 0; use 1 or more"),
        ({"gpus": 65}, "gpus is 65; use 64 or fewer"),
        ({"envs": 0}, "envs is 0"),
        ({"slots": -1}, "slots is -1; use 0 or more"),
        ({"slots": 65}, "slots is 65"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"rate_hz": 0.0}, "rate is 0.0 Hz; use 0.1 to 1000"),
        ({"rate_hz": float("nan")}, "rate is nan Hz"),
        ({"gpus": 64, "envs": 2000}, "64 × 2000 envs are more than 65536"),
        ({"gpus": 32, "envs": 2048, "slots": 64}, "envs × 64 slots are more than"),
        ({"seconds": 10, "faults": (Planned(name="nan", at_s=10),)}, "nan@10 begins after the run's 10 s"),
    ],
)
def test_settings_that_make_no_run_are_refused(wrong: dict[str, object], stated: str) -> None:
    """The message names the value and the fix."""
    with pytest.raises(SettingsError) as caught:
        Settings(**wrong)  # type: ignore[arg-type]  # the table names real fields

    assert stated in str(caught.value)


def test_steps_do_not_drift() -> None:
    """The time of a step is worked out from its number in whole nanoseconds."""
    settings = Settings(rate_hz=3.0, seconds=7)

    assert settings.steps == 21
    assert settings.step_ns(21) == 7 * 10**9
    assert settings.step_ns(1) == 333_333_333
