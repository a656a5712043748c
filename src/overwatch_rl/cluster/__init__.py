"""Every service of one run on one machine."""
