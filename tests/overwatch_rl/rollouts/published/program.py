"""The published client and trainer of the wire, unmodified, against a server: run by their own interpreter.

    python program.py URL FOLDER

An environment with groups of two, and a trainer that takes batches of four. Prints a line of JSON: what the
environment sent and what the trainer got. FOLDER is for a tokenizer, which the client wants to load.
"""

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig
from example_trainer.api import check_atropos_api, get_batch, register_trainer
from example_trainer.config import TrainingConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

STEPS = 3
BATCH = 4
DEADLINE_S = 60.0


class Counting(BaseEnv):
    """Every group has tokens of its own; the last of them is sent as a list of two groups."""

    name = "counting"

    async def setup(self) -> None:
        """Begin to count."""
        self.sent: list[int] = []

    async def get_next_item(self) -> Any:
        """The next number, until there are enough for all steps."""
        number = len(self.sent) + 1
        self.sent.append(number)
        return number

    async def collect_trajectories(self, item: int) -> Any:
        """One group, in the client's own shape: empty rows for what it has not."""
        long = list(range(10, 210))  # a body of more than 1 KiB is packed
        groups = [
            {
                "tokens": [[item, 1, 2], [item, *long]],
                "masks": [[-100, 1, 2], [-100, *long]],
                "scores": [0.0, 1.0],
                "advantages": [],
                "ref_logprobs": [],
                "messages": [],
                "group_overrides": {},
                "overrides": [],
                "images": [],
                "inference_logprobs": [[1.0, -0.5, -0.25], [1.0] * 201],
            }
            for item in ((item,) if item % 3 else (item, 100 + item))
        ]
        return (groups[0] if len(groups) == 1 else groups), []

    async def evaluate(self, *_: Any, **__: Any) -> None:
        """Nothing."""


def train(url: str, got: list[Any]) -> None:
    """The published trainer's calls: register, then batches until there were enough."""
    config = TrainingConfig(
        model_name="none", atropos_url=url, batch_size=BATCH, gradient_accumulation_steps=1, seq_len=256,
        training_steps=STEPS, save_path="checkpoints", wandb_group="group", wandb_project="project",
    )  # fmt: skip
    assert check_atropos_api(url, timeout=DEADLINE_S)
    register_trainer(config)
    until = time.monotonic() + DEADLINE_S
    while len(got) < STEPS + 1 and time.monotonic() < until:
        batch = get_batch(url)["batch"]
        if batch:
            got.append([group["tokens"][0][0] for group in batch])
        else:
            time.sleep(0.3)


def main(url: str, folder: Path) -> None:
    """Run both to their end."""
    words = {word: number for number, word in enumerate(("[UNK]", "a", "b"))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))  # noqa: S106 no password
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)  # noqa: S106
    config = BaseEnvConfig(
        group_size=2, tokenizer_name=str(folder), use_wandb=False, wandb_name="counting",
        rollout_server_url=url, total_steps=STEPS, max_token_length=256, max_num_workers=2,
        steps_per_eval=1000, ensure_scores_are_not_same=True,
    )  # fmt: skip
    got: list[Any] = []
    trainer = threading.Thread(target=train, args=(url, got))
    trainer.start()
    nobody = APIServerConfig(model_name="none", base_url="http://127.0.0.1:9/v1", api_key="none")
    env = Counting(config, [nobody])
    asyncio.run(env.env_manager())
    trainer.join()
    print(json.dumps({"sent": len(env.sent), "batches": got}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
