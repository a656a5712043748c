"""The flight: a real PPO training system, which the tower watches."""
