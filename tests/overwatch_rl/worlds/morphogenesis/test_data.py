"""Data of hosts: digits by default, CIFAR's formats from a folder, loaded ahead in the same order."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from overwatch_rl.worlds.morphogenesis.data import (
    AHEAD,
    Dataset,
    Prefetched,
    Resident,
    batches,
    cifar,
    digits,
)

CPU = torch.device("cpu")
PARTS = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def written(folder: Path, suffix: str, images: int = 4) -> np.ndarray:
    """Files of CIFAR-10's format; the images, parts x images x 3072."""
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (len(PARTS), images, 3072), dtype=np.uint8)
    for part, name in enumerate(PARTS):
        labels = [(part + place) % 10 for place in range(images)]
        if suffix:
            rows = np.concatenate([np.array(labels, dtype=np.uint8)[:, None], pixels[part]], axis=1)
            (folder / f"{name}{suffix}").write_bytes(rows.tobytes())
        else:
            (folder / name).write_bytes(pickle.dumps({b"data": pixels[part], b"labels": labels}, protocol=2))
    return pixels


def test_digits_are_split_by_position() -> None:
    """1,200 and 597 of them, in 0..1."""
    data = digits()

    assert (len(data.train_y), len(data.valid_y), data.num_pixels) == (1200, 597, 64)
    assert float(data.train_x.min()) == 0.0
    assert float(data.train_x.max()) == 1.0


@pytest.mark.parametrize("suffix", ["", ".bin"])
def test_cifar_is_read_in_both_formats(tmp_path: Path, suffix: str) -> None:
    """Five parts to train on, one to validate on."""
    pixels = written(tmp_path, suffix)
    data = cifar(tmp_path)

    assert torch.equal(data.train_x, torch.from_numpy(pixels[:5].reshape(20, 3072)))
    torch.testing.assert_close(data.valid_x, torch.from_numpy(pixels[5]).float() / 255)
    assert data.valid_y.tolist() == [5, 6, 7, 8]
    assert data.shape == (3, 32, 32)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    """With what to do; nothing takes its place."""
    with pytest.raises(ValueError, match=r"data_batch_1.*name the folder.*or leave it out"):
        cifar(tmp_path)
    written(tmp_path, ".bin")
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_3\.bin"):
        cifar(tmp_path)


def test_a_part_of_another_format_is_named(tmp_path: Path) -> None:
    """Cut short, of a class that does not exist, or a pickle that names what it may not."""
    written(tmp_path, ".bin")
    file = tmp_path / "data_batch_2.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"data_batch_2\.bin is not in CIFAR-10's format"):
        cifar(tmp_path)
    file.write_bytes(b"\x0b" + whole[1:])
    with pytest.raises(ValueError, match="has class 11"):
        cifar(tmp_path)
    other = tmp_path / "pickled"
    other.mkdir()
    written(other, "")
    (other / "data_batch_1").write_bytes(pickle.dumps(Path("x")))
    with pytest.raises(ValueError, match=r"names pathlib.*which no image needs"):
        cifar(other)


def as_bytes() -> Dataset:
    """Digits as a loader has to scale them."""
    data = digits()
    scaled = (data.train_x * 255).round().to(torch.uint8)
    return Dataset(
        name="bytes",
        shape=data.shape,
        train_x=scaled,
        train_y=data.train_y,
        valid_x=data.valid_x,
        valid_y=data.valid_y,
    )


def test_what_is_loaded_ahead_comes_in_the_same_order() -> None:
    """Minibatches of a seed are those of resident images, and a state goes on after those that were used."""
    loader, resident = batches(as_bytes(), (2, 8), CPU), batches(digits(), (2, 8), CPU)
    assert isinstance(loader, Prefetched)
    assert isinstance(resident, Resident)
    for made in (loader, resident):
        made.seed(5)
    for _ in range(AHEAD + 2):
        (x, y), (same_x, same_y) = loader.take(), resident.take()
        torch.testing.assert_close(x, same_x, atol=1 / 255, rtol=0)
        assert torch.equal(y, same_y)
    state = loader.state()
    later = [loader.take()[1] for _ in range(3)]
    loader.restore(state)

    assert all(torch.equal(y, loader.take()[1]) for y in later)
    assert torch.equal(later[0], resident.take()[1])
    loader.close()


def test_a_loader_keeps_a_few_batches_ready() -> None:
    """At most `AHEAD`; resident images have no depth."""
    loader = batches(as_bytes(), (2, 8), CPU)
    loader.seed(1)
    depths = []
    for _ in range(20):
        loader.take()
        depths.append(loader.depth)

    assert all(depth is not None and 0 <= depth <= AHEAD for depth in depths)
    assert batches(digits(), (2, 8), CPU).depth is None
    loader.close()


def test_a_loader_that_dies_is_named_where_its_batch_is_taken() -> None:
    """With the cause, and without waiting for ever."""
    data = as_bytes()
    broken = Dataset(
        name="broken",
        shape=data.shape,
        train_x=data.train_x[:1],
        train_y=data.train_y,
        valid_x=data.valid_x,
        valid_y=data.valid_y,
    )
    loader = batches(broken, (2, 8), CPU)
    loader.seed(1)

    with pytest.raises(RuntimeError, match="loader of images stopped") as error:
        loader.take()
    assert isinstance(error.value.__cause__, IndexError)
