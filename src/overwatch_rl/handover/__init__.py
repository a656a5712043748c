"""Tensors from the training thread to a process of its own, through shared memory: `sender`, `receiver`."""
