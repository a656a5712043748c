"""A language model of pairs of words, tuned on what is written or preferred; its learning rate may be absurd.

An update takes a tenth of a second. A learning rate beyond what the model bears is what goes wrong in
fine-tuning most often.
"""

import argparse
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.live.trainers.reporting import reporting

WORDS: Final = 16
WIDTH: Final = 8
LENGTH: Final = 6
"""Words of an answer."""
STRIDE: Final = 3
"""From each word to the next."""
BATCH: Final = 32
BETA: Final = 0.1
RATES: Final = {"sft": 0.3, "dpo": 10.0}
"""Healthy ones."""

Floats = NDArray[np.float64]
Answers = NDArray[np.int64]
"""B T."""


@dataclass
class Model:
    """The next word follows from the one before."""

    words: Floats
    """V D."""
    out: Floats
    """D V."""

    def log_probs(self, answers: Answers) -> Floats:
        """Of each word but the first, B T-1."""
        taken = np.take_along_axis(self._chances(answers), answers[:, 1:, None], -1)
        return np.log(taken[..., 0] + 1e-300)

    def ascend(self, answers: Answers, weights: Floats, rate: float) -> None:
        """Make answers likelier by their weights, B."""
        up = -self._chances(answers)
        taken = answers[:, 1:, None]
        np.put_along_axis(up, taken, np.take_along_axis(up, taken, -1) + 1.0, -1)
        up *= weights[:, None, None] / len(answers)
        before = answers[:, :-1]
        of_out = np.einsum("btd,btv->dv", self.words[before], up)
        of_words = np.zeros_like(self.words)
        np.add.at(of_words, before, up @ self.out.T)
        self.out += rate * of_out
        self.words += rate * of_words

    def _chances(self, answers: Answers) -> Floats:
        logits = self.words[answers[:, :-1]] @ self.out
        chances = np.exp(logits - logits.max(-1, keepdims=True))
        return np.asarray(chances / chances.sum(-1, keepdims=True))


def new_model() -> Model:
    """One that knows nothing."""
    chance = np.random.default_rng(0)
    return Model(chance.normal(size=(WORDS, WIDTH)), 0.1 * chance.normal(size=(WIDTH, WORDS)))


def written(chance: np.random.Generator) -> Answers:
    """Answers as they should be."""
    first = chance.integers(WORDS, size=(BATCH, 1))
    return (first + STRIDE * np.arange(LENGTH)) % WORDS


def fine_tuned(model: Model, chance: np.random.Generator, rate: float) -> dict[str, float]:
    """One update by what is written."""
    answers = written(chance)
    loss = -float(model.log_probs(answers).mean())
    model.ascend(answers, np.ones(BATCH), rate)
    return {"total_loss": loss}


def preferred(model: Model, first: Model, chance: np.random.Generator, rate: float) -> dict[str, float]:
    """One update by what is preferred over answers with a wrong last word (DPO), beside the first model."""
    good = written(chance)
    bad = good.copy()
    bad[:, -1] = (bad[:, -1] + 1) % WORDS
    liked, disliked = model.log_probs(good).sum(1), model.log_probs(bad).sum(1)
    gained = liked - first.log_probs(good).sum(1) - disliked + first.log_probs(bad).sum(1)
    weights = BETA * np.exp(-np.logaddexp(0.0, BETA * gained))
    model.ascend(np.concatenate([good, bad]), np.concatenate([weights, -weights]), rate)
    loss = float(np.logaddexp(0.0, -BETA * gained).mean())
    return {"total_loss": loss, "chosen_log_prob": float(liked.mean())}


def main() -> None:
    """Tune."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--algo", choices=sorted(RATES), required=True)
    parser.add_argument("--times", type=float, default=1.0, help="the healthy learning rate")
    parser.add_argument("--updates", type=int, default=120)
    flags = parser.parse_args()
    model, first, chance = new_model(), new_model(), np.random.default_rng(1)
    rate = RATES[flags.algo] * flags.times
    run_of = reporting(
        run_id=flags.run_id, task="words", algo=flags.algo, endpoint=flags.endpoint, sample=False
    )
    with run_of as run:
        for update in range(1, flags.updates + 1):
            with run.phase("update"):
                if flags.algo == "sft":
                    values = fine_tuned(model, chance, rate)
                else:
                    values = preferred(model, first, chance, rate)
                time.sleep(0.1)
            run.update(update=update, **values)


if __name__ == "__main__":
    main()
