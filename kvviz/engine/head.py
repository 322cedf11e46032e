"""Logits of hidden states that are already there, by the model's own last steps (soft caps, scalings), in pieces."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import MoeModelOutputWithPast

_ROWS = 256  # positions whose logits over the whole vocabulary are held at once


class _Known(nn.Module):
    """Stands in for a model's body and says what it would have said."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, *args: object, **kwargs: object) -> MoeModelOutputWithPast:
        said = MoeModelOutputWithPast(last_hidden_state=self.hidden)
        said.cross_attentions = None  # GPT-2 hands them on
        return said

    @property
    def decoder(self) -> nn.Module:
        """OPT asks its body's decoder."""
        return self


def logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """(tokens, vocabulary) in float32 from the body's last hidden states (tokens, width).

    The model is copied without its weights and its body replaced, so nothing that others use changes.
    """
    head = copy.copy(model)
    head._modules = dict(model._modules) | {model.base_model_prefix: _Known(hidden[None])}
    with torch.inference_mode():
        return head(input_ids=torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)).logits[0].float()


def spans(count: int) -> Iterator[tuple[int, int]]:
    """Pieces of `count` positions, small enough for their logits to be held."""
    for start in range(0, count, _ROWS):
        yield start, min(start + _ROWS, count)
