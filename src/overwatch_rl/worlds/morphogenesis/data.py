"""The supervised tasks that hosts learn, and how minibatches of them come.

Digits are scikit-learn's, 8 x 8 pixels, and come with it. Images in CIFAR's formats come from a folder that
the user names. Nothing is downloaded, and nothing takes the place of data that is missing.

Rules: minibatch t of a seed is the same however it is loaded and whatever was grown; a state is that of the
batches used, not of those loaded ahead. Must not know networks.

Shape letters: N hosts, S samples, I pixels x channels.
"""

import io
import pickle
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

NUM_CLASSES: Final = 10
DIGITS_TRAIN: Final = 1200
CIFAR_SHAPE: Final = (3, 32, 32)
MAX_BYTE: Final = 255.0
CIFAR_VALID: Final = 1000
"""Images of CIFAR's test set that hosts are validated on, the first of it."""
AHEAD: Final = 4
"""Minibatches that a loader keeps ready."""
_TRAIN_PARTS: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST_PART: Final = "test_batch"
_PICKLED: Final = frozenset(
    {"_reconstruct", "ndarray", "dtype", "encode"}
)  # what CIFAR's pickles name, of numpy and _codecs


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Images as rows of pixels, channel by channel, and their classes; ten classes."""

    name: str
    shape: tuple[int, int, int]  # channels, height, width
    train_x: Tensor  # S I float32 in 0..1, or uint8 where they are scaled as they are loaded
    train_y: Tensor  # S int64
    valid_x: Tensor  # S I float32 in 0..1
    valid_y: Tensor  # S int64

    @property
    def num_pixels(self) -> int:
        """Of all channels."""
        return self.train_x.shape[1]


@cache
def digits() -> Dataset:
    """The default, 1,200 and 597 images split by position: the same for every run."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16.0
    y = torch.from_numpy(labels).long()
    train, valid = slice(None, DIGITS_TRAIN), slice(DIGITS_TRAIN, None)
    return Dataset(
        name="digits", shape=(1, 8, 8), train_x=x[train], train_y=y[train], valid_x=x[valid], valid_y=y[valid]
    )


def cifar(folder: Path) -> Dataset:
    """Images in CIFAR-10's format, python or binary; `ValueError` with the file that is missing or wrong.

    `folder` holds `data_batch_1` to `data_batch_5` and `test_batch`, with `.bin` in the binary format.
    """
    suffix = ".bin" if (folder / f"{_TEST_PART}.bin").exists() else ""
    read = _binary if suffix else _pickled
    parts = [_part(folder / f"{part}{suffix}", read) for part in (*_TRAIN_PARTS, _TEST_PART)]
    train, (valid_x, valid_y) = parts[:-1], parts[-1]
    return Dataset(
        name="cifar",
        shape=CIFAR_SHAPE,
        train_x=torch.cat([x for x, _ in train]),
        train_y=torch.cat([y for _, y in train]),
        valid_x=valid_x[:CIFAR_VALID].float() / MAX_BYTE,
        valid_y=valid_y[:CIFAR_VALID],
    )


def _part(path: Path, read: Callable[[bytes], tuple[np.ndarray, np.ndarray]]) -> tuple[Tensor, Tensor]:
    """Images S 3072 uint8 and classes S int64 of one file."""
    try:
        images, labels = read(path.read_bytes())
    except OSError as error:
        raise ValueError(
            f"no CIFAR data in {path}: {error.strerror}; name the folder that holds "
            f"{_TEST_PART} or {_TEST_PART}.bin, or leave it out and train on digits"
        ) from error
    except (ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is not in CIFAR-10's format: {error}; fetch it again") from error
    if labels.size and not 0 <= labels.min() <= labels.max() < NUM_CLASSES:
        raise ValueError(f"{path} has class {labels.max()}; CIFAR-10 has classes 0 to {NUM_CLASSES - 1}")
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))


def _binary(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A byte of class and 3,072 of pixels an image."""
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, 1 + int(np.prod(CIFAR_SHAPE)))
    return rows[:, 1:], rows[:, 0]


def _pickled(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A dictionary of arrays; names nothing but numpy's arrays."""
    found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    return found[b"data"].reshape(-1, int(np.prod(CIFAR_SHAPE))), np.asarray(found[b"labels"])


class _Unpickler(pickle.Unpickler):
    """Reads arrays and refuses whatever else a pickle could run."""

    def find_class(self, module: str, name: str) -> object:
        """What a pickle may name."""
        if module.partition(".")[0] in {"numpy", "_codecs"} and name in _PICKLED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no image needs")


class Batches(Protocol):
    """Where minibatches come from, N S a time."""

    def seed(self, seed: int) -> None:
        """Begin the order of this seed."""
        ...

    def take(self) -> tuple[Tensor, Tensor]:
        """The next images, N S I float32 on the device, and their classes, N S int64."""
        ...

    def state(self) -> Tensor:
        """Of the order, as uint8; `restore` goes on from here."""
        ...

    def restore(self, state: Tensor) -> None:
        """Go on where `state` was taken."""
        ...


class Resident:
    """All images are on the device; a minibatch is one gather."""

    depth: float | None = None

    def __init__(self, data: Dataset, shape: tuple[int, int], device: torch.device) -> None:
        self._x, self._y = data.train_x.to(device), data.train_y.to(device)
        self._shape = shape
        self._order = torch.Generator(device)

    def seed(self, seed: int) -> None:
        """Begin the order of this seed."""
        self._order.manual_seed(seed)

    def take(self) -> tuple[Tensor, Tensor]:
        """The next minibatch of every host."""
        index = torch.randint(
            len(self._y), self._shape, generator=self._order, device=self._y.device
        ).flatten()
        x, y = self._x.index_select(0, index), self._y.index_select(0, index)
        return x.view(*self._shape, -1), y.view(self._shape)

    def state(self) -> Tensor:
        """Of the generator."""
        return self._order.get_state()

    def restore(self, state: Tensor) -> None:
        """Go on from there."""
        self._order.set_state(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A minibatch that was loaded ahead, and the state of the order after it; or why there is none."""

    x: Tensor | None = None
    y: Tensor | None = None
    after: Tensor | None = None
    error: BaseException | None = None


class Prefetched:
    """A thread gathers and scales minibatches ahead of their use, at most `AHEAD` of them.

    For images that are too many to lie on the device as float32. The thread begins with the first `take`, and
    ends with `close` or when the order begins anew.
    """

    def __init__(self, data: Dataset, shape: tuple[int, int], device: torch.device) -> None:
        self._data, self._shape, self._device = data, shape, device
        self._after = torch.Generator().get_state()
        self._ready: queue.Queue[_Ready] = queue.Queue(AHEAD)
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def depth(self) -> float | None:
        """Minibatches that are ready."""
        return float(self._ready.qsize())

    def seed(self, seed: int) -> None:
        """Begin the order of this seed."""
        self.restore(torch.Generator().manual_seed(seed).get_state())

    def take(self) -> tuple[Tensor, Tensor]:
        """The next minibatch of every host; raises what the thread died of."""
        if self._thread is None:
            self._start()
        ready = self._ready.get()
        if ready.x is None or ready.y is None or ready.after is None:
            raise RuntimeError("the loader of images stopped") from ready.error
        self._after = ready.after
        return ready.x.to(self._device, non_blocking=True), ready.y.to(self._device, non_blocking=True)

    def state(self) -> Tensor:
        """Of the order after the last minibatch that was taken."""
        return self._after.clone()

    def restore(self, state: Tensor) -> None:
        """Drop what was loaded ahead and go on from there."""
        self.close()
        self._after = state.clone()

    def close(self) -> None:
        """End the thread; `take` starts another."""
        if self._thread is None:
            return
        self._ended.set()
        while self._thread.is_alive():
            _drain(self._ready)
            self._thread.join(0.01)
        self._thread = None

    def _start(self) -> None:
        self._ready, self._ended = queue.Queue(AHEAD), threading.Event()
        order = torch.Generator()
        order.set_state(self._after)
        # A daemon: a world has no end of its own, and nothing is lost with batches that were not used.
        self._thread = threading.Thread(
            target=_load_ahead,
            args=(self._data, self._shape, order, self._ready, self._ended),
            name="overwatch-loader",
            daemon=True,
        )
        self._thread.start()


def _load_ahead(
    data: Dataset,
    shape: tuple[int, int],
    order: torch.Generator,
    ready: "queue.Queue[_Ready]",
    ended: threading.Event,
) -> None:
    """The thread: minibatches into the queue until `ended`."""
    try:
        while not ended.is_set():
            index = torch.randint(len(data.train_y), shape, generator=order).flatten()
            x = data.train_x.index_select(0, index).float().div_(MAX_BYTE).view(*shape, -1)
            y = data.train_y.index_select(0, index).view(shape)
            ready.put(_Ready(x=x, y=y, after=order.get_state()))
    except BaseException as error:  # noqa: BLE001  # taking the next batch raises it
        ready.put(_Ready(error=error))


def _drain(ready: "queue.Queue[_Ready]") -> None:
    """Make room for a thread that waits to put its batch."""
    try:
        while True:
            ready.get_nowait()
    except queue.Empty:
        return


def batches(data: Dataset, shape: tuple[int, int], device: torch.device) -> Resident | Prefetched:
    """Minibatches (hosts, samples): resident where images are float32, else loaded ahead."""
    return (Resident if data.train_x.is_floating_point() else Prefetched)(data, shape, device)
