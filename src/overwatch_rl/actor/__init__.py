"""Collects experience with the current weights."""
