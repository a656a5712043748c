"""The dashboards' names: what links, alerts and provisioning point at.

Owns `Board`. A uid never changes once it is published: bookmarks and `dashboard_url` hold it. Must not know
what is on a dashboard.
"""

from enum import Enum
from typing import Final

RUN_VARIABLE: Final = "rl_run_id"
"""The variable that every dashboard of runs has; the same word as the label."""
CLUSTER_VARIABLE: Final = "cluster"
"""The variable of the dashboard of many clusters; the label that each one's Prometheus adds."""


class Board(Enum):
    """A dashboard; the value is its uid in Grafana."""

    FLEET = "overwatch-fleet"
    """Which runs need somebody?"""
    RUN = "overwatch-run"
    """Is this policy learning, and if not, which number shows it first?"""
    LANES = "overwatch-lanes"
    """What holds each GPU back?"""
    ENVS = "overwatch-envs"
    """Which envs are not like the others?"""
    SEEDS = "overwatch-seeds"
    """Do seeds get grafted, or culled?"""
    RETURNS = "overwatch-returns"
    """Does what is really wanted rise with what the policy is paid by?"""
    ROLLOUTS = "overwatch-rollouts"
    """Do fresh rollouts reach the trainer, and from which environments?"""
    LEARNER = "overwatch-learner"
    """Does experience reach the learner, and do its weights reach the actors?"""
    REPLAY = "overwatch-replay"
    """What does replay hold, and does it answer in time?"""
    FEDERATION = "overwatch-federation"
    """Which cluster needs somebody, and how much of its time is useful?"""
    COLLECTOR = "overwatch-collector"
    """Can what the other dashboards show be trusted?"""

    @property
    def uid(self) -> str:
        """What Grafana knows it by."""
        return self.value

    @property
    def file(self) -> str:
        """Its file, below the project's root."""
        return f"dashboards/grafana/{self.value.removeprefix('overwatch-')}.json"

    def path(self, run: str | None = None) -> str:
        """Where it lies below Grafana's root; `run` is an id, or the template that an alert fills in.

        >>> Board.RUN.path("{{ $labels.rl_run_id }}")
        '/d/overwatch-run?var-rl_run_id={{ $labels.rl_run_id }}'
        """
        return f"/d/{self.uid}" + ("" if run is None else f"?var-{RUN_VARIABLE}={run}")
