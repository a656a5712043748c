"""Screens put panels together; they own who gets how many rows."""
