"""TRL's SFT trainer with Overwatch: a tiny language model learns the alphabet from text.

Model and tokenizer are made here, so nothing is downloaded. The lines marked `# Overwatch` are all that is
added. With `--dpo` the same model learns from pairs of answers instead.

    python examples/trl_sft.py --steps 40
"""

import argparse
import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer, set_seed
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from overwatch.adapters.transformers import OverwatchCallback  # Overwatch

LETTERS = "abcdefgh"
LONGEST = 8


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter."""
    words = ["<pad>", "<eos>", *LETTERS]
    codes = {word: code for code, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(codes, unk_token="<pad>"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    marks = {"pad_token": "<pad>", "eos_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **marks)


def trainer(options: argparse.Namespace, folder: str) -> Trainer:
    """Either trainer: of texts that go on as the alphabet does, or of those preferred to their reverse."""
    words = tokenizer()
    size = GPT2Config(
        vocab_size=len(words), n_positions=32, n_embd=64, n_layer=1, n_head=2,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id, bos_token_id=words.eos_token_id,
    )  # fmt: skip
    texts = [(LETTERS * 2)[start : start + LONGEST] for start in range(len(LETTERS))] * 32
    pairs = [{"prompt": text[0], "chosen": text[1:], "rejected": text[:0:-1]} for text in texts]
    GPT2LMHeadModel(size).save_pretrained(f"{folder}/start")
    kind, config = (DPOTrainer, DPOConfig) if options.dpo else (SFTTrainer, SFTConfig)
    return kind(
        model=f"{folder}/start",
        processing_class=words,
        train_dataset=Dataset.from_list(pairs if options.dpo else [{"text": text} for text in texts]),
        args=config(
            output_dir=folder,
            max_steps=options.steps,
            learning_rate=options.learning_rate,
            logging_steps=1,
            per_device_train_batch_size=16,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        callbacks=[OverwatchCallback()],  # Overwatch
    )


def main() -> None:
    """Train, and print the first loss and the last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--dpo", action="store_true")
    set_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        training = trainer(parser.parse_args(), folder)
        training.train()
    losses = [logged["loss"] for logged in training.state.log_history if "loss" in logged]
    print(f"loss: {losses[0]:.3f} at first, {losses[-1]:.3f} at last")


if __name__ == "__main__":
    main()
