"""Tianshou: keys that its loggers get."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TIANSHOU)

NAMES: Final = Names(
    library=Library.TIANSHOU,
    version="2.0.1",
    is_run=True,
    rows={
        "policy_loss": (
            _key(name="clip_loss/mean"),
            _key(name="actor_loss/mean"),
        ),
        "value_loss": (
            _key(name="vf_loss/mean"),
            _key(name="critic_loss/mean"),
        ),
        "return": (_key(name="returns_stat/mean"),),
        "total_loss": (_key(name="loss/mean"),),
        "entropy_nats": (_key(name="ent_loss/mean"),),
        "episode_length": (_key(name="lens_stat/mean"),),
    },
)
