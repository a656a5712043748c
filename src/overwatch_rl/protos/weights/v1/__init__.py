"""Messages of the weights service, version 1."""
