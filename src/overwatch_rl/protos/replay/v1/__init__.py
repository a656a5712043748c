"""Messages of the replay service, version 1."""
