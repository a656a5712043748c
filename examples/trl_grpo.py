"""TRL's GRPO trainer with Overwatch: a tiny language model learns to repeat one letter.

Model and tokenizer are made here, so nothing is downloaded. The lines marked `# Overwatch` are all that is
added.

    python examples/trl_grpo.py --steps 30 --learning-rate 3e-3
"""

import argparse
import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from overwatch.adapters.transformers import OverwatchCallback  # Overwatch

LETTERS = "abcdefgh"
LONGEST = 24
"""Tokens of the longest answer."""


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter."""
    words = ["<pad>", "<eos>", *LETTERS]
    codes = {word: code for code, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(codes, unk_token="<pad>"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    marks = {"pad_token": "<pad>", "eos_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, padding_side="left", **marks)


def repeats(prompts: list[str], completions: list[str], **_: object) -> list[float]:
    """The share of an answer's letters that are the prompt's; nothing for an answer that was cut."""
    answers = [answer.replace(" ", "") for answer in completions]
    return [
        answer.count(prompt) / len(answer) if 0 < len(answer) < LONGEST else 0.0
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


def main() -> None:
    """Train, and print the reward of the first and of the last update."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    options = parser.parse_args()
    set_seed(1)
    words = tokenizer()
    size = GPT2Config(
        vocab_size=len(words), n_positions=32, n_embd=64, n_layer=1, n_head=2,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id, bos_token_id=words.eos_token_id,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=GPT2LMHeadModel(size),
            processing_class=words,
            reward_funcs=repeats,
            train_dataset=Dataset.from_list([{"prompt": letter} for letter in LETTERS[:2]] * 64),
            args=GRPOConfig(
                output_dir=folder,
                max_steps=options.steps,
                learning_rate=options.learning_rate,
                logging_steps=1,
                per_device_train_batch_size=64,
                num_generations=8,
                num_iterations=2,
                max_completion_length=LONGEST,
                use_cpu=True,
                bf16=False,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
            ),
            callbacks=[OverwatchCallback()],  # Overwatch
        )
        trainer.train()
    rewards = [logged["reward"] for logged in trainer.state.log_history if "reward" in logged]
    print(f"reward: {rewards[0]:.3f} at first, {rewards[-1]:.3f} at last")


if __name__ == "__main__":
    main()
