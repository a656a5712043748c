"""The factors of the anomaly score, by what they look at: faults, pace, returns, seeds."""
