"""Goodhart: agents that eat, in a field where what looks like food may be poison."""
