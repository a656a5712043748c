"""From numbers to what is wrong and what to do: pure rules over the state of one run."""

from overwatch.diagnose.assess import Assessment, Judged, assess

__all__ = ["Assessment", "Judged", "assess"]
