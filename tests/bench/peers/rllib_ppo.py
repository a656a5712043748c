"""PPO of RLlib on CartPole-v1, its new API stack, all in one process.

Runs in a Python that has Ray and torch. Prints a JSON line: steps, CPU seconds of this process after one
iteration that does not count, and the return of the last one. Ray's own daemons are not counted.

    python tests/bench/peers/rllib_ppo.py RECIPE_JSON UPDATES
"""

import json
import os
import sys
import time

os.environ |= {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def main(recipe: dict, updates: int) -> None:
    """Build, warm, measure."""
    torch.set_num_threads(1)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    rows = recipe["envs"] * recipe["steps"]
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=recipe["envs"],
            rollout_fragment_length=recipe["steps"],
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=rows, minibatch_size=rows // recipe["minibatches"],
            num_epochs=recipe["epochs"], lr=recipe["learning_rate"], gamma=recipe["gamma"],
            lambda_=recipe["lam"], clip_param=recipe["clip"], entropy_coeff=recipe["entropy_coef"],
            vf_loss_coeff=recipe["value_coef"], grad_clip=recipe["max_grad_norm"],
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
    )  # fmt: skip
    made = config.build_algo()
    made.train()
    began = time.process_time()
    steps, result = 0, {}
    for _ in range(updates):
        result = made.train()
        steps += rows
    cpu_s = time.process_time() - began
    reached = result["env_runners"].get("episode_return_mean")
    print(json.dumps({"name": f"RLlib {ray.__version__}", "steps": steps, "cpu_s": cpu_s, "return": reached}))
    ray.shutdown()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
