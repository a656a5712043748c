"""Ray Tune: two learning rates of gradient descent side by side, with two lines for Overwatch."""

from ray import tune

from overwatch.adapters.ray_tune import OverwatchTuneCallback  # Overwatch


def train(config: dict[str, float]) -> None:
    """Find the least of (x - 3)²."""
    x = 0.0
    for _ in range(30):
        x -= config["learning_rate"] * 2 * (x - 3)
        tune.report({"loss": (x - 3) ** 2, "learning_rate": config["learning_rate"]})


tuner = tune.Tuner(
    train,
    param_space={"learning_rate": tune.grid_search([0.3, 0.01])},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(
        verbose=1,
        callbacks=[OverwatchTuneCallback()],  # Overwatch
    ),
)
print(tuner.fit().get_best_result().config)
