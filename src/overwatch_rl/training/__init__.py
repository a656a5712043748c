"""The training loop and what it keeps: phases, storage, the plan, the other ranks."""
