"""Messages of the replay service."""
