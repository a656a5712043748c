"""The algorithms: a name, and what makes one. `table` has the rows; importing this package needs no torch."""

from typing import Final

OWN_SETTINGS: Final[dict[str, str]] = {
    "ppo": "A setting of PPO that has no flag of its own, as max_grad_norm=10 or gae_lambda=0.9; may be "
    "repeated.",
    "dqn": "A setting of DQN, as capacity=50000 or epsilon_steps=20000; may be repeated.",
}
"""The option with which a command line sets what is an algorithm's own, and its help; one of each row."""
