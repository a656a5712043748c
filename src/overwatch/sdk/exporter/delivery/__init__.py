"""Delivery of encoded requests over OTLP: bounded in time and memory whatever a collector does."""

from overwatch.sdk.exporter.delivery.destination import Destination, destination
from overwatch.sdk.exporter.delivery.outlet import Outlet, outlet

__all__ = ["Destination", "Outlet", "destination", "outlet"]
