"""Delivery of encoded requests over OTLP: bounded in time and memory whatever a collector does."""

from overwatch.delivery.destination import Destination, destination
from overwatch.delivery.transport import OtlpTransport

__all__ = ["Destination", "OtlpTransport", "destination"]
