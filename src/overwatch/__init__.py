"""Overwatch, the tower: from an event to a pixel, a scrape or a file. Never imports torch."""

__version__ = "0.2.0"
