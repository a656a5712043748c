"""RLlib: paths in its results, joined by `/`, of the only module of a policy.

Its learners keep what they logged last: the numbers of an update are those of its last minibatch.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.RLLIB)
_last: Final = partial(_key, moment=Moment.LAST_MINIBATCH)

_LEARNER: Final = "learners/default_policy"
_OF_ONE: Final = "the same return, of the only agent or module"
_EVALUATION: Final = "of episodes without exploration, in another env"
_EXTREME: Final = "the extreme of a window of episodes, no mean"
_RATE: Final = "of one of several optimisers"

NAMES: Final = Names(
    library=Library.RLLIB,
    version="2.60.0",
    is_run=True,
    rows={
        "kl_divergence": (_last(name=f"{_LEARNER}/mean_kl_loss", estimator=Estimator.EXACT),),
        "eval_return": (_key(name="evaluation/env_runners/episode_return_mean"),),
        "explained_variance": (_last(name=f"{_LEARNER}/vf_explained_var"),),
        "grad_norm": (_last(name=f"{_LEARNER}/gradients_default_optimizer_global_norm"),),
        "learning_rate": (_key(name=f"{_LEARNER}/default_optimizer_learning_rate"),),
        "policy_loss": (
            _last(name=f"{_LEARNER}/mean_pi_loss"),
            _last(name=f"{_LEARNER}/policy_loss"),
        ),
        "value_loss": (
            _last(name=f"{_LEARNER}/mean_vf_loss"),
            _last(name=f"{_LEARNER}/vf_loss"),
            _last(name=f"{_LEARNER}/qf_loss"),
        ),
        "value_loss_unclipped": (_last(name=f"{_LEARNER}/vf_loss_unclipped"),),
        "total_loss": (_last(name=f"{_LEARNER}/total_loss"),),
        "entropy_nats": (_last(name=f"{_LEARNER}/entropy"),),
        "value_mean": (_last(name=f"{_LEARNER}/qf_mean"),),
        "value_min": (_last(name=f"{_LEARNER}/qf_min"),),
        "value_max": (_last(name=f"{_LEARNER}/qf_max"),),
        "return": (
            _key(name="env_runners/episode_return_mean"),
            _key(name="episode_reward_mean"),
        ),
        "episode_length": (_key(name="env_runners/episode_len_mean"),),
    },
    left={
        f"{_LEARNER}/curr_kl_coeff": "the weight of KL in the loss, no divergence",
        f"{_LEARNER}/curr_entropy_coeff": "the weight of entropy in the loss, no entropy",
        f"{_LEARNER}/pi_loss": "a sum over the batch; mean_pi_loss is its mean",
        f"{_LEARNER}/td_error_mean": "the mean of absolute errors; the row has their sign",
        f"{_LEARNER}/qf_twin_loss": "of the second of two critics",
        f"{_LEARNER}/alpha_loss": "of SAC's temperature",
        f"{_LEARNER}/alpha_value": "SAC's temperature, no value of the critic",
        f"{_LEARNER}/log_alpha_value": "the logarithm of SAC's temperature",
        f"{_LEARNER}/target_entropy": "what SAC's temperature aims at",
        f"{_LEARNER}/policy_learning_rate": _RATE,
        f"{_LEARNER}/qf_learning_rate": _RATE,
        f"{_LEARNER}/qf_twin_learning_rate": _RATE,
        f"{_LEARNER}/alpha_learning_rate": _RATE,
        f"{_LEARNER}/diff_num_grad_updates_vs_sampler_policy": "updates between acting and learning",
        "env_runners/episode_return_min": _EXTREME,
        "env_runners/episode_return_max": _EXTREME,
        "env_runners/agent_episode_return_mean/default_agent": _OF_ONE,
        "env_runners/module_episode_return_mean/default_policy": _OF_ONE,
        "evaluation/env_runners/episode_return_min": _EVALUATION,
        "evaluation/env_runners/episode_return_max": _EVALUATION,
        "evaluation/env_runners/agent_episode_return_mean/default_agent": _EVALUATION,
        "evaluation/env_runners/module_episode_return_mean/default_policy": _EVALUATION,
        "time_this_iter_s": "evaluation is part of it; the adapter measures without",
    },
)
