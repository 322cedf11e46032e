"""The attention function every model is loaded with: plain SDPA, and an open ear for whoever asks.

Importing this module registers `ATTENTION` with transformers' attention and mask interfaces. The function
computes what the model asks for; when an observer is active in the current context (a `ContextVar`, so the
observer of one thread is never another's) it is handed the query, key and value first. Nothing is patched
and nothing is left on the model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "kvviz"

_QUERY_BLOCK = 256  # rows of the score matrix held at once where SDPA cannot be used


@dataclass(frozen=True, eq=False, slots=True)
class AttentionCall:
    """One layer's attention as the model asked for it.

    query (batch, heads, queries, key_width), key (batch, kv_heads, keys, key_width),
    value (batch, kv_heads, keys, value_width); mask is boolean (True = may look), additive, or None = causal.
    """

    layer: int
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]


Observer = Callable[[AttentionCall], None]

_observer: ContextVar[Observer | None] = ContextVar("kvviz_attention_observer", default=None)


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Hand every attention call of this context (this thread, this block) to `observer`."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The model's attention, (batch, queries, heads, value_width), by SDPA or by its own arithmetic."""
    observer = _observer.get()
    if observer is not None:
        observer(AttentionCall(module.layer_idx, module, query, key, value, attention_mask, options))
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        return _attend_in_blocks(module, query, key, value, attention_mask, options), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)


def _attend_in_blocks(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Attention with soft-capped scores (Gemma 2) or learned sinks (gpt-oss), which SDPA has no argument for."""
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    scaling = options.get("scaling")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    blocks = []
    for start in range(0, query.shape[2], _QUERY_BLOCK):
        rows = slice(start, min(start + _QUERY_BLOCK, query.shape[2]))
        scores = torch.matmul(query[:, :, rows], key.transpose(2, 3)) * scaling
        if (softcap := options.get("softcap")) is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores = _hide(scores, mask, rows, query.shape[2])
        blocks.append(torch.matmul(_softmax(scores, options.get("s_aux")).to(value.dtype), value))
    return torch.cat(blocks, dim=2).transpose(1, 2).contiguous()


def _hide(scores: Tensor, mask: Tensor | None, rows: slice, queries: int) -> Tensor:
    """Scores (batch, heads, rows, keys) with -inf where the mask, or causality when there is none, forbids."""
    keys = scores.shape[-1]
    if mask is None:
        if queries == 1:
            return scores
        positions = torch.arange(rows.start, rows.stop, device=scores.device) + keys - queries
        allowed = torch.arange(keys, device=scores.device) <= positions[:, None]
        return scores.masked_fill(~allowed, float("-inf"))
    block = mask[:, :, rows, :keys]
    return scores.masked_fill(~block, float("-inf")) if block.dtype == torch.bool else scores + block


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """float32 softmax over keys; a learned sink logit (one a head) takes its share and is dropped."""
    if sinks is None:
        return scores.softmax(dim=-1, dtype=torch.float32)
    column = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
    return torch.cat([scores, column], dim=-1).softmax(dim=-1, dtype=torch.float32)[..., :-1]


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
