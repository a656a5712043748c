"""A store of any book: here one of plain items, without a queue or leases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from overwatch_rl.oplog import ItemLostError, Level, Store, StoreLimits

SMALL = StoreLimits(
    level=Level.FAST, held_bytes=1 << 20, memory_bytes=1_000, disk_bytes=4 << 20, segment_bytes=4 << 10
)


class Put(msgspec.Struct, frozen=True, tag=True):
    """Items are there from now on."""

    at: int
    items: tuple[int, ...]


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Items are no more."""

    at: int
    items: tuple[int, ...]


class Whole(msgspec.Struct, frozen=True, tag=True):
    """All items."""

    at: int
    items: tuple[int, ...]


Operation = Put | Drop | Whole


@dataclass
class Stock:
    """A book of items."""

    items: dict[int, None] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        """Change the state."""
        match operation:
            case Put(items=items):
                self.items |= dict.fromkeys(items)
            case Drop(items=items):
                for item in items:
                    del self.items[item]
            case Whole(items=items):
                self.items = dict.fromkeys(items)

    def snapshot(self, at: int) -> Operation:
        """All of it."""
        return Whole(at, tuple(self.items))

    def mended(self, operation: Operation) -> Operation | None:
        """Drop what is there."""
        if isinstance(operation, Drop):
            return Drop(operation.at, tuple(item for item in operation.items if item in self.items))
        return operation

    def lost(self, items: tuple[int, ...], at: int) -> list[Operation]:
        """They are no more."""
        return [Drop(at, items)]


def opened(path: Path | None, limits: StoreLimits = SMALL) -> tuple[Stock, Store[Operation]]:
    """A book and its store."""
    stock = Stock()
    return stock, Store(stock, Operation, (path, "stock"), limits)


def put(stock: Stock, store: Store[Operation], payloads: Mapping[int, bytes]) -> None:
    """Add items, and wait until they are safe."""
    operation = Put(store.last_at + 1, tuple(payloads))
    stock.apply(operation)
    store.submit([operation], payloads, ()).result(20)


def drop(stock: Stock, store: Store[Operation], items: tuple[int, ...], *, is_named: bool) -> None:
    """Remove items."""
    operation = Drop(store.last_at + 1, items)
    stock.apply(operation)
    store.submit([operation], {}, items if is_named else None).result(20)


@pytest.mark.parametrize("is_named", [True, False])
def test_what_lives_is_read_back_in_every_life(tmp_path: Path, is_named: bool) -> None:  # noqa: FBT001 a column
    """From memory or from disk, whether a caller names what is gone or not; the memory is bounded."""
    payloads: dict[int, bytes] = {}
    for life in range(4):
        stock, store = opened(tmp_path / "s")
        for turn in range(40):
            new = {life * 1_000 + turn * 3 + place: bytes([turn]) * 100 for place in range(3)}
            put(stock, store, new)
            payloads |= new
            gone = tuple(sorted(payloads)[:2])
            drop(stock, store, gone, is_named=is_named)
            for item in gone:
                del payloads[item]
        assert set(stock.items) == set(payloads)
        assert {item: store.load(item) for item in payloads} == payloads
        assert store.held_bytes == sum(map(len, payloads.values()))
        assert sum(map(len, store.payloads.values())) <= 1_000 + 600
        assert store.spilled_bytes == store.held_bytes - sum(map(len, store.payloads.values()))
        store.close()
    assert len(payloads) == 160


def test_an_item_that_is_gone_is_an_error() -> None:
    """There is no such item, in memory or on disk."""
    _, store = opened(None, StoreLimits(level=Level.MEMORY))
    with pytest.raises(ItemLostError, match="item 7 cannot be read back"):
        store.load(7)
