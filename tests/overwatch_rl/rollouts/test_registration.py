"""A trainer comes first, environments wait for it, and everybody is answered what it needs."""

import pytest

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.wire import (
    Admission,
    EnvIdentifier,
    EnvRegistered,
    EnvWaits,
    Failure,
    NoTrainer,
)
from overwatch_rl.web.faults import RefusedError
from tests.overwatch_rl.rollouts.driven import RESET, Driven, NoBatch, env_of, registration

REQUEST = env_of("maths")


def test_an_environment_waits_until_the_trainer_has_asked_for_its_first_batch() -> None:
    """It waits without a trainer, waits with one, and is registered after the first GET /batch."""
    driven = Driven()
    assert isinstance(driven.do(queue.register_env(driven.state, REQUEST, driven.now)), EnvWaits)
    trainer = registration(starting_step=5, num_steps=9)
    driven.do(queue.register_trainer(driven.state, trainer, driven.now))
    assert isinstance(driven.do(queue.register_env(driven.state, REQUEST, driven.now)), EnvWaits)

    assert isinstance(driven.batch(), NoBatch)

    answer = driven.do(queue.register_env(driven.state, REQUEST, driven.now))
    assert isinstance(answer, EnvRegistered)
    assert (answer.env_id, answer.wandb_name, answer.starting_step) == (0, "maths_0", 5)
    assert answer.num_steps == 9
    assert answer.version.number == 5


def test_names_are_unique_by_a_number_of_their_own() -> None:
    """The same name twice gets 0 and 1; another one begins at 0; ids count on."""
    driven = Driven()
    driven.trainer()

    found = [driven.env(name=name) for name in ("maths", "maths", "code")]

    assert found == [0, 1, 2]
    assert [env.name for env in driven.state.envs.values()] == ["maths_0", "maths_1", "code_0"]


def test_a_batch_without_a_trainer_names_what_to_do() -> None:
    """No trainer, no batch: the answer names the call that is missing."""
    driven = Driven()

    answer = driven.do(queue.batch(driven.state, driven.now))

    assert answer.reply == NoTrainer(message="no trainer has registered; POST /register first")


def test_a_size_that_fits_no_batch_is_reported_with_the_sizes_and_the_fix() -> None:
    """Groups of 3 alone never make 8, nor beside 4; with 5 they do, and with a batch of 16 too."""
    driven = Driven()
    driven.trainer(8)
    request = env_of("three", 3)
    driven.env(4)

    answer = driven.do(queue.register_env(driven.state, request, driven.now))

    assert isinstance(answer, EnvRegistered)
    assert answer.unreachable == (
        "groups of 3 beside 4 never add up to a batch of 8; use a group size that divides 8"
    )
    driven.env(5)
    assert queue.unreachable(driven.state, 3) is None
    large = Driven()
    large.trainer(16)
    large.env(4)
    assert queue.unreachable(large.state, 3) is None
    assert queue.unreachable(large.state, 17) == (
        "a group of 17 is larger than the batch of 16; send at most 16 sequences a group"
    )


def test_a_second_registration_loses_nothing() -> None:
    """A trainer that comes again finds environments and groups, and no environment waits."""
    driven = Driven()
    driven.trainer()
    env = driven.env()
    driven.send(env, 2)

    again = registration(starting_step=3)
    driven.do(queue.register_trainer(driven.state, again, driven.now))

    assert driven.state.account.queued.groups == 2
    assert isinstance(driven.do(queue.register_env(driven.state, REQUEST, driven.now)), EnvRegistered)
    assert driven.state.step == 3


def test_a_reset_forgets_all_but_totals_and_ids() -> None:
    """What was queued counts as expired by reset; an old id is unknown, a new environment gets another."""
    driven = Driven()
    driven.trainer()
    env = driven.env()
    driven.send(env, 3)
    driven.batch()

    driven.do(queue.reset(driven.state, RESET, driven.now))

    account = driven.state.account
    assert account.expired["reset"].groups == account.accepted.groups == 3
    with pytest.raises(RefusedError, match=f"env_id {env} is not registered"):
        queue.status_env(driven.state, env, driven.now)
    driven.trainer()
    assert driven.env() == env + 1


def test_an_environment_that_left_comes_back_with_its_next_call() -> None:
    """Leaving frees share and tickets at once; its groups stay, and a call brings it back."""
    driven = Driven()
    driven.trainer(16)
    leaving, staying = driven.env(), driven.env()
    driven.send(leaving)
    assert driven.tickets(leaving).tickets

    driven.do(queue.disconnect_env(driven.state, EnvIdentifier(env_id=leaving), driven.now))

    assert queue.shares(driven.state) == {staying: 1.0}
    assert driven.state.running == 0
    assert driven.state.account.queued.groups == 1
    answer = driven.do(queue.status_env(driven.state, leaving, driven.now))
    assert answer.env_weight == 0.5
    assert set(queue.shares(driven.state)) == {leaving, staying}


def test_an_unknown_environment_is_named() -> None:
    """Every call of an environment names the id it does not know, and what to do."""
    driven = Driven()
    driven.trainer()
    why = "env_id 7 is not registered here; POST /register-env again"

    with pytest.raises(RefusedError, match=why):
        queue.status_env(driven.state, 7, driven.now)
    with pytest.raises(RefusedError, match=why):
        queue.admit(driven.state, Admission(env_id=7), driven.now)
    assert queue.disconnect_env(driven.state, EnvIdentifier(env_id=7), driven.now) == Failure(error=why)
