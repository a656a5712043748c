"""RLlib: its own example of PPO on CartPole, with two lines for Overwatch."""

from ray.rllib.algorithms.ppo import PPOConfig

from overwatch.adapters.rllib import OverwatchRLlibCallback  # Overwatch

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=1, sample_timeout_s=600)
    .training(train_batch_size_per_learner=512, num_epochs=4)
    .callbacks(OverwatchRLlibCallback)  # Overwatch
)

algo = config.build_algo()
for _ in range(8):
    print(algo.train()["env_runners"]["episode_return_mean"])
algo.stop()
