"""Delivery of encoded requests over OTLP: bounded in time and memory whatever a collector does."""

from overwatch.delivery.destination import Destination, destination
from overwatch.delivery.outlet import Outlet, outlet

__all__ = ["Destination", "Outlet", "destination", "outlet"]
