"""An object whose methods are watched is, for everybody else, what it was before."""

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch

from overwatch.adapters.methods import failing, watch


class Loop:
    """Something that trains."""

    def __init__(self) -> None:
        self.updates = 0

    def train(self, error: BaseException | None = None) -> int:
        """One update."""
        if error is not None:
            raise error
        self.updates += 1
        return self.updates

    @staticmethod
    def device() -> str:
        """Needs no object."""
        return "cpu"

    def __getattr__(self, name: str) -> Any:
        if name != "forwarded":
            raise AttributeError(name)
        return lambda: "by another"


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("updates",)

    def train(self) -> str:
        """One update."""
        return "trained"


class Network(torch.nn.Module):
    """A module that counts its calls."""

    def train_once(self) -> str:
        """One update."""
        return "trained"


def _doubled(method: Any, *args: Any) -> Any:
    return method(*args) * 2


def test_a_method_is_called_by_the_function_until_it_is_let_go() -> None:
    """No attribute, the same name; then the class is the loop's own, also for who kept the method."""
    loop = Loop()
    unwatch = watch(loop, {"train": _doubled, "device": _doubled, "no_such_method": _doubled})
    train = loop.train

    assert (loop.train(), loop.device()) == (2, "cpucpu")
    assert (vars(loop), type(loop).__name__, isinstance(loop, Loop)) == ({"updates": 1}, "Loop", True)
    unwatch()
    unwatch()
    assert type(loop) is Loop
    assert (loop.train(), train()) == (2, 3)


def test_other_objects_of_the_class_are_not_watched() -> None:
    """Neither one that is there, nor one that is made later."""
    loop, other = Loop(), Loop()
    watch(loop, {"train": _doubled})
    assert (other.train(), Loop().train(), loop.train()) == (1, 1, 2)


@pytest.mark.parametrize("name", ["train", "forwarded"])
def test_what_is_no_method_of_the_class_is_watched_too(name: str) -> None:
    """An attribute in the place of one, and what the object forwards; then it is as before."""
    loop = Loop()
    if name == "train":
        vars(loop)["train"] = lambda: "by another"
    before = dict(vars(loop))
    unwatch = watch(loop, {name: _doubled})

    assert getattr(loop, name)() == "by another" * 2
    unwatch()
    assert (vars(loop), getattr(loop, name)()) == (before, "by another")


def test_several_may_watch_one_object() -> None:
    """The newest is called first; each gets what the one before returns."""
    loop = Loop()
    first = watch(loop, {"train": _doubled})
    second = watch(loop, {"train": lambda method: -method()})

    assert loop.train() == -2
    second()
    assert loop.train() == 4
    first()
    assert (loop.train(), type(loop)) == (3, Loop)


@pytest.mark.parametrize("made", [Loop, Slotted, Network])
@pytest.mark.parametrize("way", ["pickle", "deepcopy", "old pickle"])
def test_a_copy_is_of_the_class_from_before(made: type[Any], way: str) -> None:
    """Checkpoints of a watched object load where there is no Overwatch; also with two who watch."""
    if made is Slotted and way == "old pickle":
        pytest.skip("Python cannot pickle an object with slots so")
    thing = made()
    thing.updates = 7
    for _ in range(2):
        watch(thing, {"train": lambda method: method()})
    copied = {
        "pickle": lambda: pickle.loads(pickle.dumps(thing)),  # noqa: S301 our own
        "old pickle": lambda: pickle.loads(pickle.dumps(thing, protocol=0)),  # noqa: S301
        "deepcopy": lambda: copy.deepcopy(thing),
    }[way]()

    assert type(copied) is made
    assert copied.updates == 7


def test_what_was_let_go_is_freed_at_once() -> None:
    """A model is large: it does not wait for the collector of cycles."""
    loop = Loop()
    unwatch = watch(loop, {"train": lambda method: method()})
    loop.train()
    unwatch()
    is_alive = weakref.ref(loop)
    gc.disable()
    try:
        del loop, unwatch
        assert is_alive() is None
    finally:
        gc.enable()


def test_an_exception_is_noticed_and_goes_on() -> None:
    """Whatever it is."""
    loop, seen = Loop(), list[BaseException]()
    watch(loop, {"train": failing(seen.append)})
    error = KeyboardInterrupt()

    assert loop.train() == 1
    with pytest.raises(KeyboardInterrupt):
        loop.train(error)
    assert seen == [error]
