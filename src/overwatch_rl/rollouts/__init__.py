"""Trajectories in, fair fresh batches out, nothing acknowledged ever lost.

Never imports torch: handlers and the server run where no trainer is installed.
"""
