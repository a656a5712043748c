"""What keys, commands and the mouse do to a session: plain functions, by what they are about."""
