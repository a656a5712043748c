"""A small language model that learns by GRPO from the rollouts server."""
