"""Rollouts: dense columns of many steps, from the trainer's tensors to the events of each step.

`columns` knows which columns there are, `given` takes them, `cut` makes records of them in the trainer's
process, `events` makes events of those in the exporter's.
"""
