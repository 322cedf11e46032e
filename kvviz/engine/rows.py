"""The attention of a text read once more, a block of query rows at a time, from one layer or from all of them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext

import numpy as np
import torch

from kvviz.engine.attention import Turn, eager_weights, forward, one_layer
from kvviz.engine.probe import ATTENTION
from kvviz.engine.scores import AttentionCall, Block, block
from kvviz.models.loading import LanguageModel

_CELLS = 2**23  # of one block, heads x rows x keys: 32 MiB in float32


def read_rows(
    lm: LanguageModel,
    ids: Sequence[int],
    layer: int | None,
    take: Callable[[int, Block], None],
    queries: range | None = None,
    *,
    turn: Turn = nullcontext,
) -> None:
    """Hand `take(layer, block)` the rows of `queries` (of all, when left out), in blocks and in order.

    `layer` None reads every layer in one forward, which gives its `turn()` up between layers. Raises ValueError
    for a layer without attention, and Refused as `kvviz.engine.attention.eager_weights` does.
    """
    queries = range(len(ids)) if queries is None else queries
    tensor = torch.tensor(ids, device=lm.device)
    if lm.model.config._attn_implementation != ATTENTION:
        with turn():
            for number, weights in enumerate(eager_weights(lm, tensor)):
                if layer in (None, number):
                    take(number, _of_weights(weights, queries))
        return
    with ExitStack() as at_work:

        def hear(call: AttentionCall) -> None:
            rows = max(1, _CELLS // (call.query.shape[1] * len(ids)))
            for start in range(queries.start, queries.stop, rows):
                take(call.layer, block(call, start, min(start + rows, queries.stop)))
            if layer is None:
                at_work.close()
                at_work.enter_context(turn())

        at_work.enter_context(turn())
        if layer is None:
            forward(lm, tensor, hear)
        else:
            one_layer(lm, ids, layer, hear)


def mixed(rows: Block, head: int | str) -> np.ndarray:
    """One head's rows, or the "mean" or "max" over the heads: float32 (rows, keys), NaN where a row may not look."""
    weights = rows.probabilities
    picked = {"mean": lambda: weights.mean(0), "max": lambda: weights.amax(0)}.get(head, lambda: weights[head])()
    return picked.masked_fill(~rows.allowed, float("nan")).cpu().numpy()


def _of_weights(weights: torch.Tensor, queries: range) -> Block:
    rows = weights[:, queries.start : queries.stop, : queries.stop]
    allowed = torch.ones(rows.shape[1:], dtype=torch.bool, device=rows.device).tril(queries.start)
    return Block(rows, None, allowed, queries.start)
