"""Numbers of the services beside a trainer."""

from overwatch.catalog import Scope
from overwatch.events import Measured, scalars
from tests import fakes
from tests.fakes import START_NS


def test_a_service_that_measures_itself_is_no_update_of_the_policy() -> None:
    """Its numbers are kept, and the run is at the update that its trainer told."""
    told = Measured(at=START_NS, scope=Scope.LEARNER, values=scalars({"learner.policy_loss": 0.25}))
    state = fakes.folded([fakes.policy(START_NS, 7, entropy=0.5), told, told])

    assert (state.updates, state.update) == (1, 7)
    assert state.policy["learner.policy_loss"].value == 0.25
