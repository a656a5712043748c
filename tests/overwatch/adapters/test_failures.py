"""The env that raised is named where the frames of its exception state it."""

import multiprocessing
from multiprocessing.connection import Connection

import pytest

from overwatch.adapters.failures import culprit


class Env:
    """Raises where it is asked to."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def step(self) -> None:
        """One step."""
        if self.error is not None:
            raise self.error


class Vector:
    """Steps its envs in a loop, as Gymnasium's and SB3's vectors in one process do."""

    def __init__(self, *errors: Exception | None) -> None:
        self.envs = [Env(error) for error in errors]
        self.remotes: list[Connection] = []

    def step_wait(self) -> None:
        """One step of all, and something that is no env's at the end."""
        for env_idx in range(len(self.envs)):
            self.envs[env_idx].step()
        self.stack()

    def stack(self) -> None:
        """What follows the steps."""
        raise ValueError("shapes differ")

    def receive(self) -> None:
        """Answers of envs in other processes."""
        for remote in self.remotes:
            remote.recv()


def _error(call: object) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 whatever it raises
        call()  # type: ignore[operator]
    return caught.value


def test_the_env_at_hand_is_named_and_no_other() -> None:
    """The second of three; none for what comes after the steps, or for the envs of another vector."""
    broken, whole = Vector(None, ValueError("joint"), None), Vector(None, None)

    assert culprit(_error(broken.step_wait), broken) == 1
    assert culprit(_error(whole.step_wait), whole) is None
    assert culprit(_error(broken.step_wait), whole) is None


def test_the_env_whose_pipe_is_closed_is_named() -> None:
    """Its process is gone."""
    pipes = [multiprocessing.Pipe() for _ in range(2)]
    vector = Vector()
    vector.remotes = [ours for ours, _ in pipes]
    pipes[0][1].send("a step")
    pipes[1][1].close()

    assert culprit(_error(vector.receive), vector) == 1
    for pipe in (*vector.remotes, pipes[0][1]):
        pipe.close()
