"""Versions, signatures and digests of artifacts. Never imports torch."""
