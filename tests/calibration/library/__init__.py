"""Real trainings, healthy and broken, that are drawn by their case and kept as they arrived."""
