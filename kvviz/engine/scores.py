"""Attention probabilities of one call, a block of query rows at a time, by the call's own rules.

Soft-capped scores (Gemma 2), learned sinks (gpt-oss), sliding and chunked masks, grouped heads and position biases
are taken from the call; nothing larger than heads x block x keys is ever held.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_HIDDEN = float("-inf")


@dataclass(frozen=True, eq=False, slots=True)
class AttentionCall:
    """One layer's attention as the model asked for it.

    query (batch, heads, queries, key_width), key (batch, kv_heads, keys, key_width),
    value (batch, kv_heads, keys, value_width); mask is boolean (True = may look), additive, or None = causal.
    The queries are the last ones of the keys' sequence.
    """

    layer: int
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]

    def sequence(self, index: int) -> "AttentionCall":
        """The call of one sequence of the batch."""
        one = slice(index, index + 1)
        mask = self.mask if self.mask is None or self.mask.shape[0] == 1 else self.mask[one]
        return replace(self, query=self.query[one], key=self.key[one], value=self.value[one], mask=mask)


class Block(NamedTuple):
    """Rows of one call: float32 probabilities (heads, rows, keys), 0 where hidden, of the first `keys` keys.

    `sink` (heads, rows) is what a learned sink took, None for a model without: a row then sums to 1 - sink.
    `allowed` (rows, keys) says which keys a row may look at; `start` is the row number of the first.
    """

    probabilities: Tensor
    sink: Tensor | None
    allowed: Tensor
    start: int


def block(call: AttentionCall, start: int, stop: int) -> Block:
    """The rows from `start` to `stop` of a call with one sequence in its batch."""
    offset = call.key.shape[2] - call.query.shape[2]
    keys = stop + offset  # causal: what comes later is hidden from all of these rows
    scores = _scores(call, start, stop, keys)
    allowed = torch.ones(stop - start, keys, dtype=torch.bool, device=scores.device).tril(start + offset)
    if call.mask is not None:
        mask = call.mask[0, :, start:stop, :keys]
        if mask.dtype == torch.bool:
            allowed = allowed & mask[0]
        else:
            scores = scores + mask
            allowed = allowed & (mask[0] > torch.finfo(mask.dtype).min / 2)
    scores = scores.masked_fill_(~allowed, _HIDDEN)
    learned = call.options.get("s_aux")
    if learned is None:
        return Block(scores.softmax(dim=-1), None, allowed, start)
    column = learned.float().reshape(-1, 1, 1).expand(-1, stop - start, 1)
    with_sink = torch.cat([scores, column], dim=-1).softmax(dim=-1)
    return Block(with_sink[..., :-1], with_sink[..., -1], allowed, start)


def _scores(call: AttentionCall, start: int, stop: int, keys: int) -> Tensor:
    """(heads, rows, keys) in float32."""
    scores = products(call.query[0, :, start:stop], call.key[0, :, :keys], call.options)
    if (bias := call.options.get("position_bias")) is not None:
        scores = scores + bias[0, :, start:stop, :keys]
    return scores


def products(query: Tensor, key: Tensor, options: dict[str, Any]) -> Tensor:
    """Scaled, perhaps soft-capped products (heads, rows, keys) in float32, nothing hidden yet.

    query (heads, rows, width), key (key_heads, keys, width); query heads that share a key head are multiplied
    with it together.
    """
    query, key = query.float(), key.float()
    heads, rows, width = query.shape
    scaling = options.get("scaling")
    grouped = query.reshape(key.shape[0], -1, width) * (width**-0.5 if scaling is None else scaling)
    scores = torch.matmul(grouped, key.transpose(1, 2)).view(heads, rows, key.shape[1])
    if (softcap := options.get("softcap")) is not None:
        scores = torch.tanh(scores / softcap) * softcap
    return scores
