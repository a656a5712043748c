"""Which library writes is read from the names that it alone has."""

import pytest

from overwatch.catalog import LIBRARIES, Library, Names
from overwatch.catalog.libraries.guess import library_of

OF_USERS = {Library.LIGHTNING, Library.RAY_TUNE, Library.TRANSFORMERS}
"""What these log is named by their users, or as others name it."""


@pytest.mark.parametrize(
    "names", [one for one in LIBRARIES if one.library not in OF_USERS], ids=lambda names: names.library.value
)
def test_each_library_is_known_by_its_own_names(names: Names) -> None:
    """All names of its table together."""
    own = [alias.name for row in names.rows.values() for alias in row]
    assert library_of(own) is names.library


def test_the_most_names_win() -> None:
    """One name that another library has too changes nothing."""
    assert library_of(["losses/entropy", "losses/approx_kl", "charts/SPS", "info/kl"]) is Library.CLEANRL


WORDS = ["return", "kl", "entropy", "clip_fraction", "explained_variance", "grad_norm", "value_loss", "loss"]


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["my/number", "accuracy", "reward"],
        WORDS,
        [f"train/{word}" for word in WORDS],
        [*WORDS, "loss_critic", "kl_approx"],
        ["charts/SPS", *(f"mine/{n}" for n in range(40))],
    ],
    ids=["none", "by hand", "catalogue", "train/", "more of the catalogue than of TorchRL", "a twentieth"],
)
def test_words_that_others_write_too_show_no_library(names: list[str]) -> None:
    """Names by hand, the catalogue's own, and a few that are a library's by chance."""
    assert library_of(names) is None
