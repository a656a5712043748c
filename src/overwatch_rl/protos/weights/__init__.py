"""Messages of the weights service."""
