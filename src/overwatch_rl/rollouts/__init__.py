"""The rollouts API: trajectories in, fair fresh batches out; never imports torch."""
