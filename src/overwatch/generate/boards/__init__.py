"""Grafana's dashboards, from the catalogue: each answers one question, and has a uid that never changes."""
