"""What libraries log becomes numbers of rows, or custom ones, and never what it is not."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from overwatch.adapters.numbers import flat, numbers, scalar
from overwatch.catalog import Library


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float32(2),
        np.array(2.0),
        np.array([2.0]),
        torch.tensor(2.0),
        torch.tensor([[2]]),
        Fraction(2),
    ],
)
def test_a_single_number_is_one_whatever_holds_it(value: object) -> None:
    """Python's, NumPy's, torch's."""
    assert scalar(value) == 2.0


def test_a_whole_number_beyond_every_float_is_infinite() -> None:
    """As `1e400` is, and no error in a trainer's loop."""
    assert [scalar(sign * 10**400) for sign in (1, -1)] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "value",
    [True, None, "2", [2.0], np.array([1.0, 2.0]), np.array("x"), torch.ones(2), {"a": 1.0}, np.bool_(True)],
)
def test_what_is_no_single_number_is_left_out(value: object) -> None:
    """Texts, flags, histograms."""
    assert scalar(value) is None


def test_a_number_is_given_in_the_unit_and_sign_of_its_row() -> None:
    """SB3 logs the loss of entropy, which is minus the entropy."""
    assert numbers({"train/entropy_loss": -0.5}, Library.SB3) == {"entropy_nats": 0.5}


def test_a_name_of_the_catalogue_is_known_beside_a_librarys() -> None:
    """The library's own name of the row comes first; what its table leaves out stays out."""
    logged = {"kl_divergence": 0.2, "train/approx_kl": 0.1, "train/ent_coef": 0.01, "mine": 3.0}
    assert numbers(logged, Library.SB3) == {
        "kl_divergence": 0.1,
        "overwatch.custom.kl_divergence": 0.2,
        "overwatch.custom.train/ent_coef": 0.01,
        "overwatch.custom.mine": 3.0,
    }
    assert numbers({"value_loss": 2.0, "train/return": 9.0}, Library.SKRL) == {
        "value_loss": 2.0,
        "train/return": 9.0,
    }


@pytest.mark.parametrize("library", [Library.LIGHTNING, Library.TRANSFORMERS])
def test_what_trains_any_model_has_a_policys_names_in_its_table_alone(library: Library) -> None:
    """The KL of an autoencoder is no policy's."""
    assert numbers({"kl_divergence": 1.2}, library) == {"overwatch.custom.kl_divergence": 1.2}


def test_the_second_name_of_a_row_is_custom() -> None:
    """One value fills a row; nothing is lost."""
    assert numbers({"train/grad_norm": 2.0, "grad_norm": 3.0}, Library.TRL) == {
        "grad_norm": 2.0,
        "overwatch.custom.grad_norm": 3.0,
    }


def test_what_is_not_finite_stays_so() -> None:
    """It is judged, not hidden."""
    assert math.isnan(numbers({"train/approx_kl": math.nan}, Library.SB3)["kl_divergence"])


def test_values_within_others_have_their_path_as_a_name() -> None:
    """As Tianshou's logger and W&B join them."""
    stats = {"loss": {"mean": 1.0, "std": 0.5}, "gradient_steps": 3}

    assert dict(flat(stats, "/", "update/")) == {
        "update/loss/mean": 1.0,
        "update/loss/std": 0.5,
        "update/gradient_steps": 3,
    }
    assert dict(flat(stats, ".")) == {"loss.mean": 1.0, "loss.std": 0.5, "gradient_steps": 3}
