"""Methods of one object, called by functions of an adapter: the one way to look at what a library does.

Rules: a function gets the method and its arguments, and what it returns is returned. The object gets a class
of its own and no attribute, since libraries save, compare and list attributes; only an attribute that is in
a method's place is replaced itself. A pickle or a copy is of the class from before. Must not know what is
reported.
"""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Around: TypeAlias = Callable[..., Any]
"""Takes a method, and what it was called with."""

_BEFORE: Final = "_overwatch_class"
"""In a class that was made here: the one from before."""


def watch(owner: Any, calls: Mapping[str, Around]) -> Callable[[], None]:
    """Have these functions call methods of an object, until what this returns is called.

    A name of which there is no method is left out. The last that was watched is the first to be let go.
    """
    kind, attributes = type(owner), getattr(owner, "__dict__", {})
    live = {name: call for name, call in calls.items() if callable(getattr(owner, name, None))}
    of_class = {name for name in live if name not in attributes and hasattr(kind, name)}
    own: Any = types.new_class(
        kind.__name__,
        (kind,),
        exec_body=lambda body: body.update(
            {name: _called(kind, name, live) for name in of_class},
            __module__=kind.__module__, __qualname__=kind.__qualname__, __slots__=(), __reduce_ex__=_reduce,
            **{_BEFORE: kind},
        ),
    )  # fmt: skip
    of_object = live.keys() - of_class
    before = {name: attributes[name] for name in of_object if name in attributes}
    attributes.update({name: functools.partial(live[name], getattr(owner, name)) for name in of_object})
    if of_class:
        object.__setattr__(owner, "__class__", own)

    def unwatch() -> None:
        live.clear()  # what still has one of these methods calls the library's
        if type(owner) is own:
            object.__setattr__(owner, "__class__", kind)
        for name in of_object:
            attributes.pop(name, None)
        attributes.update(before)

    return unwatch


def failing(failed: Callable[[BaseException], object]) -> Around:
    """Have `failed` called while an exception leaves a method."""

    def around(method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            failed(error)
            raise

    return around


def _called(kind: type, name: str, live: Mapping[str, Around]) -> Callable[..., Any]:
    method: Any = inspect.getattr_static(kind, name)

    @functools.wraps(getattr(kind, name))
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        around, bound = live.get(name), method.__get__(self, kind)
        return bound(*args, **kwargs) if around is None else around(bound, *args, **kwargs)

    return call


def _reduce(self: Any, protocol: Any) -> Any:
    """How the object is pickled and copied: as one of the class from before."""
    found = _before(type(self)).__reduce_ex__(self, protocol)
    if isinstance(found, str):
        return found
    made_by, arguments, *state = found
    arguments = tuple(map(_before, arguments))
    if getattr(made_by, "__name__", "") == "__newobj__":  # pickle wants the object's own class there
        made_by = arguments[0].__new__
    return _before(made_by), arguments, *state


def _before(one: Any) -> Any:
    while isinstance(one, type) and _BEFORE in vars(one):
        one = vars(one)[_BEFORE]
    return one
