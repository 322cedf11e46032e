"""Attention mass lost: how much of the full model's attention falls on tokens that a policy had dropped."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kvviz.engine.attention import forward
from kvviz.engine.scores import AttentionCall, block
from kvviz.models.loading import LanguageModel

Turn = Callable[[], AbstractContextManager]
Progress = Callable[[int], None]

_ROWS = 128  # queries whose attention is held at once


class Gone(NamedTuple):
    """When a policy dropped what: int32 (layers, kv_heads, tokens) as in `Evictions.gone`, and the layers' numbers."""

    layers: tuple[int, ...]
    after: np.ndarray


def lost_attention(
    lm: LanguageModel,
    ids: Sequence[int],
    policies: Sequence[Gone],
    *,
    progress: Progress | None = None,
    turn: Turn = nullcontext,
) -> list[np.ndarray]:
    """For each policy, float32 (layers, T): share of each query's attention that falls on keys dropped before it.

    The attention is the full model's, mean over the query heads of a layer; a query still sees what goes after its own
    step. What a learned sink takes (gpt-oss) counts as attention on no token. One forward of the model over `ids`,
    reduced in blocks of queries; `progress` gets the number of attention layers done, what it raises ends the work,
    and turns are given up between layers.
    """
    lost = [np.zeros((len(each.layers), len(ids)), dtype=np.float32) for each in policies]
    heard = 0
    with ExitStack() as at_work:

        def hear(call: AttentionCall) -> None:
            nonlocal heard
            heard += 1
            ours = [
                (shares[index], each.after[index])
                for shares, each in zip(lost, policies, strict=True)
                for index, layer in enumerate(each.layers)
                if layer == call.layer
            ]
            if ours:
                found = _of_layer(call, [after for _, after in ours])
                for (shares, _), share in zip(ours, found, strict=True):
                    shares[:] = share
            if progress is not None:
                progress(heard)
            at_work.close()
            at_work.enter_context(turn())

        at_work.enter_context(turn())
        forward(lm, torch.tensor(list(ids), device=lm.device), hear)
    return lost


def _of_layer(call: AttentionCall, dropped: Sequence[np.ndarray]) -> np.ndarray:
    """float32 (policies, queries) for one layer; `dropped` are its rows of `Gone.after`, (kv_heads, tokens)."""
    after = torch.from_numpy(np.stack(dropped)).to(call.query.device)
    heads, queries = call.query.shape[1:3]
    parts = []
    for start in range(0, queries, _ROWS):
        stop = min(start + _ROWS, queries)
        weights = block(call, start, stop).probabilities
        rows, keys = weights.shape[1:]
        # query heads that share a key lose it together
        shared = weights.view(after.shape[1], heads // after.shape[1], rows, keys).sum(dim=1)
        parts.append(torch.stack([_on_dropped(shared, each[:, :keys], start) for each in after]) / heads)
    return torch.cat(parts, dim=1).cpu().numpy()


def _on_dropped(weights: Tensor, after: Tensor, start: int) -> Tensor:
    """(rows,): sum over KV heads and keys of `weights` (kv_heads, rows, keys) where the key went before the row."""
    query = torch.arange(start, start + weights.shape[1], device=weights.device)[:, None]
    return (weights * (after[:, None] < query)).sum(dim=(0, 2))
