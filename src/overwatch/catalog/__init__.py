"""WHAT is measured: one row per metric, by area; the seed stages; nothing that runs."""
