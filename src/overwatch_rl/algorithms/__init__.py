"""The algorithms: estimates, networks and updates, as functions of tensors."""
