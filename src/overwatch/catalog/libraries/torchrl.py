"""TorchRL: keys of its losses and of its examples."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TORCHRL)

NAMES: Final = Names(
    library=Library.TORCHRL,
    version="0.14.1",
    is_run=True,
    rows={
        "policy_loss": (
            _key(name="loss_objective"),
            _key(name="loss_actor"),
        ),
        "value_loss": (_key(name="loss_critic"),),
        "kl_k1": (_key(name="kl_approx", estimator=Estimator.K1),),
    },
)
