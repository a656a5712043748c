"""A tiny transformer over letters, and how answers are drawn from it.

Rules: tensors in, tensors out; answers of a whole batch are drawn together, a letter at a time, keys and
values of earlier letters kept. Drawn log-probabilities are those of the whole distribution at temperature 1,
and equal to rounding what the model gives for the same letters at once. Must not know the task or training.

Shape letters: B sequences, S letters, P letters of a prompt, A letters of an answer, V vocabulary, H heads.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

_NEVER: Final = -1e9
"""The logit of what is impossible; finite, since infinity times a chance of 0 is NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """How large the transformer is."""

    vocabulary: int
    """Codes of letters, the empty place 0 included."""
    positions: int
    """Letters of the longest sequence."""
    width: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        for name in ("vocabulary", "positions", "width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}; use a multiple of the {self.heads} heads")


class Kept:
    """Keys and values of the letters that one layer has seen."""

    def __init__(self) -> None:
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def with_new(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep these too, each B H S D; all of them."""
        if self._keys is not None and self._values is not None:
            keys, values = torch.cat([self._keys, keys], dim=2), torch.cat([self._values, values], dim=2)
        self._keys, self._values = keys, values
        return keys, values


class Block(nn.Module):
    """Attention, then a layer for each letter."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self._heads = config.heads
        self.before = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None, kept: Kept | None) -> Tensor:
        """B S width; without a mask each letter sees those up to itself."""
        size, letters, width = x.shape
        parts = self.mixed(self.before(x)).view(size, letters, 3, self._heads, width // self._heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind()
        if kept is not None:
            keys, values = kept.with_new(keys, values)
        seen = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None
        )
        x = x + self.joined(seen.transpose(1, 2).reshape(size, letters, width))
        added: Tensor = self.narrow(functional.gelu(self.wide(self.between(x))))
        return x + added


class Transformer(nn.Module):
    """Letters to the logits of the next one."""

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        """Weights are drawn from `generator`: same state, same model."""
        super().__init__()
        self.config = config
        self.letters = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.last = nn.LayerNorm(config.width)
        self.logits = nn.Linear(config.width, config.vocabulary - 1, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.5 / config.width**0.5, generator=generator)

    def forward(
        self,
        tokens: Tensor,
        places: Tensor | None = None,
        mask: Tensor | None = None,
        kept: list[Kept] | None = None,
    ) -> Tensor:
        """B S V from B S; the empty place is never next. `places` are positions, 0, 1, 2 … without them."""
        if places is None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.letters(tokens) + self.places(places)
        for number, block in enumerate(self.blocks):
            x = block(x, mask, None if kept is None else kept[number])
        found: Tensor = functional.pad(self.logits(self.last(x)), (1, 0), value=_NEVER)
        return found

    def num_parameters(self) -> int:
        """Weights that a letter is multiplied with, embeddings left out."""
        embedded = self.letters.weight.numel() + self.places.weight.numel()
        return sum(parameter.numel() for parameter in self.parameters()) - embedded


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The answers to a batch of prompts."""

    tokens: Tensor  # B A int64, 0 after the end of an answer
    log_probs: Tensor  # B A, 0 after the end
    lengths: Tensor  # B, letters of each answer, its end included, which one lacks that was cut


@torch.no_grad()
def answer(
    model: Transformer, prompts: list[list[int]], *, most: int, end: int, generator: torch.Generator
) -> Drawn:
    """Draw an answer of at most so many letters to each prompt; prompts may differ in length."""
    longest = max(map(len, prompts))
    # Filled up at the beginning, so that all answers begin at the same place.
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    is_letter = tokens > 0
    places = (is_letter.cumsum(dim=1) - 1).clamp(min=0)
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    # An empty place sees itself: without anything to see, attention is NaN.
    mask = (causal & is_letter[:, None, :]) | torch.eye(longest, dtype=torch.bool)
    kept = [Kept() for _ in model.blocks]
    logits = model(tokens, places, mask[:, None], kept)[:, -1]
    place, is_open = places[:, -1], torch.ones(len(prompts), dtype=torch.bool)
    letters, taken = [], []
    for number in range(most):
        chances = functional.log_softmax(logits, dim=-1)
        noise = torch.empty_like(chances).exponential_(generator=generator)
        letter = (chances - noise.log()).argmax(dim=-1)
        letters.append(torch.where(is_open, letter, 0))
        taken.append(torch.where(is_open, chances.gather(1, letter[:, None]).squeeze(1), 0.0))
        is_open = is_open & (letter != end)
        if number + 1 == most or not bool(is_open.any()):
            break
        place = place + 1
        is_letter = torch.cat([is_letter, torch.ones_like(is_letter[:, :1])], dim=1)
        logits = model(letter[:, None], place[:, None], is_letter[:, None, None], kept)[:, -1]
    drawn = torch.stack(letters, dim=1)
    return Drawn(tokens=drawn, log_probs=torch.stack(taken, dim=1), lengths=(drawn > 0).sum(dim=1))
