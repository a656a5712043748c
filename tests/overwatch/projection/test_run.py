"""The run as a whole, as a view may know it."""

from overwatch.diagnose import Assessment, assess
from overwatch.events import Origin, Record
from overwatch.projection import project
from overwatch.snapshot import View
from overwatch.state import apply, new_run
from tests import fakes
from tests.fakes import START_NS


def test_servers_and_handlers_are_no_ranks_of_the_trainer() -> None:
    """Each counts its processes from 0; a run that nobody trains has those that there are."""

    def ranks(*owner: tuple[str, int]) -> int:
        event = fakes.started(START_NS)
        records = [
            Record(origin=Origin(run_id="r", role=role, rank=rank), event=event) for role, rank in owner
        ]
        state = new_run(records[0])
        for record in records:
            apply(state, record, START_NS + 1)
        return project(state, assess(state, Assessment(), START_NS + 2), View()).run.ranks

    assert ranks(("handler", 2), ("rollouts", 0), ("trainer", 0), ("handler", 1)) == 1
    assert ranks(("trainer", 0), ("trainer", 1), ("handler", 2)) == 2
    assert ranks(("actor", 0), ("actor", 1)) == 2
