"""transformers: keys in the logs of its Trainer, bare and with the prefix that Weights & Biases gets.

They are those of every trainer, also of TRL's that learn from data (SFT, DPO, KTO, ORPO, CPO, Reward): what
these log besides is about data, not about a policy that acts.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TRANSFORMERS, is_bare=True)
_DATA: Final = "is of a given text, not of answers that the policy chose"

NAMES: Final = Names(
    library=Library.TRANSFORMERS,
    version="5.24.0",
    is_run=True,
    rows={
        "total_loss": (_key(name="loss"), _key(name="train/loss")),
        "grad_norm": (_key(name="grad_norm"), _key(name="train/grad_norm")),
        "learning_rate": (_key(name="learning_rate"), _key(name="train/learning_rate")),
        "chosen_log_prob": (_key(name="logps/chosen"), _key(name="train/logps/chosen")),
    },
    left={
        "entropy": _DATA,
        "mean_token_accuracy": _DATA,
        "kl": "KTO's is the baseline of its loss, from answers that belong to other prompts",
        "rewards/*": "is a log ratio to the reference model times beta, not a reward that was paid",
        "nll_loss": "is a part of the loss of ORPO and CPO",
        "mean_reward": "is what a reward model that is being trained gives to a given text",
        "min_reward": "as `mean_reward`",
        "max_reward": "as `mean_reward`",
        "train_loss": "is the mean over the whole training",
        "eval_*": "is of data that nothing is learned from",
    },
)
