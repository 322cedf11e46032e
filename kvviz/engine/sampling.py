"""Choosing the next token from the logits: greedy, or temperature and top-p with a seed."""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopPLogitsWarper

from kvviz.errors import Refused


class Choice(NamedTuple):
    """The chosen id, its probability before temperature and top-p, and how far the best logit leads the second."""

    token_id: int
    probability: float
    margin: float


class Sampler:
    """Greedy at temperature 0, otherwise sampling from softmax(logits / temperature) cut at `top_p`.

    Draws come from a generator of its own on the CPU, so a seed gives the same draws on every device.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0) -> None:
        """Raise Refused for a temperature below 0 or a top-p outside (0, 1]."""
        if not 0 <= temperature <= 10:
            raise Refused("The temperature must be between 0 (greedy) and 10, not {value}.", value=temperature)
        if not 0 < top_p <= 1:
            raise Refused("Top-p must be above 0 and at most 1, not {value}.", value=top_p)
        self._temperature = temperature
        self._warpers = [TemperatureLogitsWarper(float(temperature))] if temperature > 0 else []
        if temperature > 0 and top_p < 1:
            self._warpers.append(TopPLogitsWarper(float(top_p)))
        self._generator = torch.Generator().manual_seed(int(seed))

    def choose(self, logits: Tensor) -> Choice:
        """The next token from `logits` (vocabulary,), computed in float32."""
        logits = logits.float()
        best = logits.topk(2)
        token = best.indices[0] if self._temperature == 0 else self._draw(logits)
        facts = torch.stack([(logits[token] - logits.logsumexp(-1)).exp(), best.values[0] - best.values[1]]).tolist()
        return Choice(int(token), *facts)

    def _draw(self, logits: Tensor) -> Tensor:
        scores = logits[None]
        for warp in self._warpers:
            scores = warp(None, scores)
        drawn = torch.multinomial(scores[0].softmax(-1).cpu(), 1, generator=self._generator)
        return drawn[0].to(logits.device)
