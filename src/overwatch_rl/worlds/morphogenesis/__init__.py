"""The world in which a policy grows networks."""
