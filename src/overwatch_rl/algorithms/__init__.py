"""The algorithms: a name, and what makes one."""
