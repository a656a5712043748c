"""prime-rl: keys of its monitors, of trainer and orchestrator."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.PRIME_RL)

NAMES: Final = Names(
    library=Library.PRIME_RL,
    version="of commit 004274e",
    is_run=False,
    rows={
        "total_loss": (_key(name="loss/mean"),),
        "entropy_nats": (_key(name="entropy/all/mean", moment=Moment.BATCH),),
        "mismatch_kl": (_key(name="mismatch_kl/all/mean", estimator=Estimator.K3, moment=Moment.BATCH),),
        "grad_norm": (_key(name="optim/grad_norm"),),
        "learning_rate": (_key(name="optim/lr"),),
        "return": (_key(name="reward/all/mean"),),
        "episode_length": (_key(name="decode_len/all/mean"),),
        "answers_cut": (_key(name="stop_condition/all/generation_truncated"),),
        # In per cent.
        "mfu": (_key(name="perf/mfu", scale=0.01),),
        "update_time": (_key(name="time/step"),),
    },
    left=MappingProxyType(
        {
            "kl_ent_ratio/mean": "a divergence over an entropy",
            "masked_mismatch_kl/mean": "of masked tokens alone",
            "unmasked_mismatch_kl/mean": "of tokens that are not masked alone",
            "optim/zero_grad_ratio": "a share of weights, not a norm",
            "is_truncated/all/mean": "prompts that were too long count too",
            "seq_len/all/mean": "of prompt and answer together",
            "effective_batch_size/all": "groups that earned neither 0 nor 1 alone; the row is of the others",
            "reward/all/max": "of one group",
            "reward/all/min": "of one group",
            "solve_none/all": "groups that earned 0 alone",
            "solve_all/all": "groups that earned 1 alone",
        }
    ),
)
