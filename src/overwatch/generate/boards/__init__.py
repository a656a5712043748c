"""Grafana's dashboards, from the catalogue: each answers one question, and has a uid that never changes.

What a board shows is data (`spec`, one module a board); only `drawing` and `panels` know Grafana.
"""
