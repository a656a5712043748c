from collections.abc import Callable, Sized
from typing import Any, Final

EDITION: Final[int]

def update(
    *,
    names: tuple[str, ...],
    ring: object,
    token: list[None],
    aside: Sized,
    view: memoryview,
    flush: Callable[[], object],
    stuck: memoryview,
    length: int,
    size: int,
    step: int,
    published: int,
    released: int,
    counter: int,
    prime: int,
    put: Callable[[tuple[float, ...], int, int | None], object],
    latest: object,
    waiting: Sized | None,
    other: Callable[..., None],
    tally: memoryview,
    tag: int,
) -> Callable[..., None]: ...
def envs(
    *,
    names: tuple[str, ...],
    ring: object,
    token: list[None],
    aside: Sized,
    view: memoryview,
    flush: Callable[[], object],
    stuck: memoryview,
    length: int,
    size: int,
    step: int,
    published: int,
    released: int,
    counter: int,
    prime: int,
    array: type,
    waiting: Sized,
    other: Callable[..., None],
    plain: int,
    indexed: int,
    rows: int,
    formats: str,
) -> Callable[..., None]: ...
def checksum(payload: Any, start: int, /) -> int: ...
