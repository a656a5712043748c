"""What heartbeats, commands and acknowledgements do to a run; random sequences of them against a model."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from overwatch_rl.orchestrator import runs
from overwatch_rl.orchestrator.commands import Change, Command, Done, Pause, Resume, Terminate, Tune
from overwatch_rl.orchestrator.runs import ConflictError, Held, Run
from overwatch_rl.orchestrator.states import FINAL, LEGAL, route
from overwatch_rl.orchestrator.wire import Heartbeat

DONE = Done(outcome="done")


def beat(
    status: Any = "running", step: int = 0, lineage: int = 0, checkpoint: str | None = None
) -> Heartbeat:
    """A heartbeat."""
    return Heartbeat(run_id="r", status=status, step=step, lineage=lineage, checkpoint_version=checkpoint)


def ran(*beats: Heartbeat, run: Run | None = None) -> Run:
    """A run after some heartbeats."""
    run = run or Run()
    for one in beats:
        run = runs.beaten(run, one)
    return run


def test_the_first_heartbeat_begins_a_run() -> None:
    """At whatever step its checkpoint was."""
    run = ran(beat(step=500, lineage=3, checkpoint="003-00000007"))

    assert run == Run(state="running", lineage=3, step=500, checkpoint_version="003-00000007")


def test_within_a_life_steps_and_checkpoints_never_go_back() -> None:
    """A step that stays is none; the error names both and the fix."""
    run = ran(beat(step=10, checkpoint="000-00000002"), beat(step=10))

    assert run.checkpoint_version == "000-00000002"
    with pytest.raises(ConflictError, match=r"step: 9 is before 10, .* begins the next lineage"):
        ran(beat(step=9), run=run)
    with pytest.raises(ConflictError, match=r"checkpoint_version: 000-00000001 is before 000-00000002"):
        ran(beat(step=11, checkpoint="000-00000001"), run=run)


def test_a_restart_goes_on_from_its_checkpoint_and_is_accepted() -> None:
    """As a new life; the former one is refused from then on."""
    run = ran(beat(step=100, checkpoint="000-00000009"), beat(step=60, lineage=1, checkpoint="000-00000006"))

    assert (run.state, run.step, run.lineage, run.checkpoint_version) == ("running", 60, 1, "000-00000006")
    with pytest.raises(ConflictError, match=r"lineage: 0 is over: the learner of lineage 1 has begun"):
        ran(beat(step=200), run=run)


@pytest.mark.parametrize(("words", "state"), [("errored", "failed"), ("completed", "completed")])
def test_an_end_that_no_operator_made_may_be_gone_on_from(words: str, state: str) -> None:
    """By a new life; the same one has had its last words, which may be repeated."""
    run = ran(beat(step=5), beat(words, 5))

    assert run.state == state
    assert ran(beat(words, 5), run=run) == run
    with pytest.raises(ConflictError, match=rf"status: {state} → running is not legal"):
        ran(beat(step=6), run=run)
    assert ran(beat(step=2, lineage=1), run=run).state == "running"


def test_a_terminated_run_stays_so() -> None:
    """A new life is refused too."""
    run = ran(beat(), beat("terminated"))

    with pytest.raises(ConflictError, match=r"status: terminated → running is not legal"):
        ran(beat(lineage=1), run=run)


def test_a_pause_is_a_state_once_it_was_obeyed() -> None:
    """Not when it was issued; the same for resume."""
    run = ran(beat())
    made = runs.commanded(run, [], "p", Pause())
    assert made.run.state == "running"
    run, held = runs.acknowledged(made.run, runs.delivered(made.held), DONE)

    assert (run.state, held.status) == ("paused", "done")
    made = runs.commanded(run, [held], "r", Resume())
    assert runs.acknowledged(made.run, runs.delivered(made.held), DONE)[0].state == "running"


def test_a_command_that_was_refused_changes_no_state() -> None:
    """It is known what became of it."""
    made = runs.commanded(ran(beat()), [], "p", Pause())
    run, held = runs.acknowledged(made.run, runs.delivered(made.held), Done(outcome="refused", detail="no"))

    assert (run.state, held.status, held.done) == ("running", "refused", Done(outcome="refused", detail="no"))


def test_a_tune_is_remembered_as_the_learner_reports() -> None:
    """For a new life, which begins with it."""
    made = runs.commanded(ran(beat()), [], "t", Tune(values={"clip": 0.1}))
    done = Done(outcome="done", changes={"clip": Change(before=0.2, after=0.1)})
    run, _ = runs.acknowledged(made.run, runs.delivered(made.held), done)

    assert run.tuned == {"clip": 0.1}


def test_a_terminate_is_a_state_at_once_and_supersedes_what_was_not_delivered() -> None:
    """The learner ends with its acknowledgement; heartbeats until then change nothing."""
    run = ran(beat())
    known = [Held(id="a", command=Pause(), status="delivered", deliveries=1), Held(id="b", command=Resume())]
    made = runs.commanded(run, known, "t", Terminate())

    assert (made.run.state, made.superseded) == ("terminating", ("b",))
    assert ran(beat(step=9), beat("paused", 9), beat("terminating", 9), run=made.run).state == "terminating"
    assert ran(beat(step=0, lineage=1), run=made.run).state == "terminating"
    ended, _ = runs.acknowledged(made.run, runs.delivered(made.held), DONE)
    assert ended.state == "terminated"
    with pytest.raises(ConflictError, match=r"the run is terminating; resume is for one that is pending"):
        runs.commanded(made.run, known, "c", Resume())


def test_a_terminate_before_the_beginning_ends_at_once() -> None:
    """No learner would acknowledge it."""
    made = runs.commanded(Run(), [Held(id="p", command=Pause())], "t", Terminate())

    assert (made.run.state, made.held.status, made.superseded) == ("terminated", "done", ("p",))


def test_a_command_is_the_same_by_its_id() -> None:
    """The same again is repeated, even once the run is over; another under its id is refused."""
    held = Held(id="a", command=Pause(), status="done", done=DONE)
    again = runs.commanded(Run(state="terminated"), [held], "a", Pause())

    assert (again.is_repeated, again.held) == (True, held)
    with pytest.raises(ConflictError, match=r"id: a is a command already, another one"):
        runs.commanded(Run(state="running"), [held], "a", Resume())


def test_the_oldest_command_is_in_force_until_it_is_acknowledged() -> None:
    """The first acknowledgement counts; one of a command that was not delivered is refused."""
    first, second = Held(id="a", command=Pause()), Held(id="b", command=Resume())
    run = ran(beat())

    assert runs.in_force(run, [first, second]) == first
    out = runs.delivered(runs.delivered(first))
    assert (out.status, out.deliveries) == ("delivered", 2)
    assert runs.in_force(run, [out, second]) == out
    with pytest.raises(ConflictError, match=r"command b is queued; acknowledge what was delivered"):
        runs.acknowledged(run, second, DONE)
    run, out = runs.acknowledged(run, out, DONE)
    assert runs.acknowledged(run, out, Done(outcome="failed")) == (run, out)
    assert runs.in_force(run, [out, second]) == second


def test_commands_that_wait_are_bounded() -> None:
    """A terminate always has room."""
    known = [Held(id=str(number), command=Pause()) for number in range(runs.MOST_WAITING)]

    with pytest.raises(ConflictError, match=r"64 commands wait; send more once the learner has obeyed"):
        runs.commanded(ran(beat()), known, "x", Resume())
    assert len(runs.commanded(ran(beat()), known, "x", Terminate()).superseded) == runs.MOST_WAITING


COMMANDS: tuple[Command, ...] = (Pause(), Resume(), Terminate(), Tune(values={"clip": 0.1}))


class Random(RuleBasedStateMachine):
    """An operator, a learner that dies and comes back, and the run, beside a model that has no table.

    The model follows the learner alone: `over` is how it ended, `doomed` whether a terminate was issued.
    """

    @initialize()
    def begin(self) -> None:
        """Nothing has happened."""
        self.run = Run()
        self.known: list[Held] = []
        self.lineage, self.step, self.is_begun = 0, 0, False
        self.mode, self.doomed, self.over = "running", False, None
        self.numbers = 0

    @rule(kind=st.sampled_from(COMMANDS), again=st.booleans())
    def command(self, kind: Command, *, again: bool) -> None:
        """Issue one; of a run that is over or doomed it must be refused."""
        self.numbers += 1
        named = f"c{self.numbers}"
        waiting = [held for held in self.known if runs.is_waiting(held)]
        try:
            made = runs.commanded(self.run, self.known, named, kind)
        except ConflictError:
            full = len(waiting) >= runs.MOST_WAITING and not isinstance(kind, Terminate)
            assert self.over is not None or self.doomed or full
            return
        assert self.over is None
        assert not self.doomed
        self._changed(made.run, is_new_life=False)
        gone = set(made.superseded)
        self.known = [
            Held(id=one.id, command=one.command, status="superseded") if one.id in gone else one
            for one in self.known
        ]
        self.known.append(made.held)
        if isinstance(kind, Terminate):
            self.doomed, self.over = True, None if self.is_begun else "terminated"
            assert [one.status for one in self.known if runs.is_waiting(one) and one.status == "queued"] == (
                ["queued"] if self.is_begun else []
            )
        if again:
            assert runs.commanded(self.run, self.known, named, kind).is_repeated

    @rule(forward=st.integers(0, 3))
    def beats(self, forward: int) -> None:
        """The living learner reports."""
        self.step += forward
        self._beat("paused" if self.mode == "paused" else "running")

    @rule(back=st.integers(0, 5))
    def comes_back(self, back: int) -> None:
        """The learner dies, and a new life goes on from an older step; it reads the run's state first."""
        former = beat(step=self.step, lineage=self.lineage)
        self.lineage += 1
        self.step = max(0, self.step - back)
        self.mode = "paused" if self.run.state == "paused" else "running"
        if self.over in ("completed", "failed"):
            self.over = None
        self._beat(self.mode)
        if self.over is None:
            with pytest.raises(ConflictError, match=r"is over"):
                runs.beaten(self.run, former)

    @precondition(lambda self: self.step > 0 and self.is_begun and self.over is None)
    @rule()
    def goes_back(self) -> None:
        """Within a life a smaller step is refused, and nothing has changed."""
        with pytest.raises(ConflictError, match=r"step"):
            runs.beaten(self.run, beat(step=self.step - 1, lineage=self.lineage))

    @rule(outcome=st.sampled_from(("done", "done", "refused", "failed")))
    def obeys(self, outcome: Any) -> None:
        """The learner takes the command in force, once or twice, and acknowledges it."""
        held = runs.in_force(self.run, self.known)
        if held is None:
            assert self.over is not None or not any(runs.is_waiting(one) for one in self.known)
            return
        assert held == next(one for one in self.known if runs.is_waiting(one))
        held = runs.delivered(held)
        run, after = runs.acknowledged(self.run, held, Done(outcome=outcome))
        self._changed(run, is_new_life=False)
        self.known = [after if one.id == held.id else one for one in self.known]
        match held.command:
            case Terminate():
                self.over = "terminated" if outcome == "done" else "failed"
            case Pause() if outcome == "done":
                self.mode = "paused"
            case Resume() if outcome == "done":
                self.mode = "running"
            case _:
                pass
        if not self.is_begun and outcome == "done" and isinstance(held.command, Pause | Resume):
            self.is_begun = True

    @rule(words=st.sampled_from(("completed", "errored")))
    def ends(self, words: Any) -> None:
        """The learner's last words."""
        self._beat(words)

    def _beat(self, status: Any) -> None:
        heartbeat = beat(status, self.step, self.lineage)
        is_new = runs.is_new_life(self.run, heartbeat)
        last = {"completed": "completed", "errored": "failed"}.get(status)
        if self.over is not None and self.over != last and not (is_new and self.over != "terminated"):
            with pytest.raises(ConflictError, match=r"status"):
                runs.beaten(self.run, heartbeat)
            return
        self._changed(runs.beaten(self.run, heartbeat), is_new_life=is_new)
        self.is_begun = True
        if last is not None:
            self.over = last

    def _changed(self, run: Run, *, is_new_life: bool) -> None:
        steps = route(self.run.state, run.state, is_new_life=is_new_life)
        assert all(state in LEGAL for state in steps)
        self.run = run

    @invariant()
    def is_as_the_model(self) -> None:
        """The state shows what the learner does and what was asked of it."""
        if not hasattr(self, "run"):
            return
        if self.over is not None:
            assert self.run.state == self.over
        elif self.doomed:
            assert self.run.state == "terminating"
        elif not self.is_begun:
            assert self.run.state == "pending"
        else:
            assert self.run.state == self.mode
        assert (self.run.state in FINAL) == (self.over is not None)
        assert sum(one.status == "delivered" for one in self.known) <= 1


Random.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestRandomSequences = Random.TestCase


@pytest.mark.long
def test_many_random_sequences() -> None:
    """As above, longer."""
    run_state_machine_as_test(
        Random, settings=settings(max_examples=600, stateful_step_count=60, deadline=None)
    )
