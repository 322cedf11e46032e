"""Taking cached tokens away: what changes for later tokens when nobody may look at a key any more."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kvviz.engine.attention import Turn
from kvviz.engine.probe import ATTENTION, edit
from kvviz.engine.scores import AttentionCall
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel

_LOGIT_BYTES = 2**30  # of all positions' logits in float32, held at once
_TOP = 5
_ROWS = 256


@dataclass(frozen=True, eq=False, slots=True)
class Knockout:
    """A text with and without some of its keys, for all queries after them from `since` on.

    nll and nll_without are float32 (T - 1,): minus log of the probability of token 1, 2, ... given those before it.
    top and top_without are the likeliest next tokens after the text, pairs of (id, probability).
    """

    positions: tuple[int, ...]
    since: int
    nll: np.ndarray
    nll_without: np.ndarray
    top: list[tuple[int, float]]
    top_without: list[tuple[int, float]]


def take_away(
    lm: LanguageModel, ids: Sequence[int], positions: Collection[int], *, since: int = 0, turn: Turn = nullcontext
) -> Knockout:
    """Hide the keys at `positions` from every later query, in all layers and heads; each token still sees itself.

    Queries before `since` may still look: a sink that is hidden at once is replaced by the next token, which then
    sees only itself as the sink did; one that is hidden later is not. Two forwards over the text, teacher-forced.

    Raises Refused for models whose attention cannot be edited, for positions outside the text, and for texts whose
    logits would not fit into 1 GiB.
    """
    if lm.model.config._attn_implementation != ATTENTION:
        raise Refused("This model computes its attention itself, so no token can be taken away from it.")
    limit = _LOGIT_BYTES // (4 * lm.config.vocab_size)
    if len(ids) > limit:
        raise Refused(
            "Taking a token away is possible in texts of at most {limit} tokens with this model, not {count}.",
            limit=f"{limit:,}",
            count=f"{len(ids):,}",
        )
    hidden = sorted(set(positions))
    if not ids or not hidden or hidden[0] < 0 or hidden[-1] >= len(ids):
        raise Refused("Choose a token between 0 and {last} to take away.", last=max(0, len(ids) - 1))
    with turn():
        nll, top = _losses(lm, ids)
    with turn(), edit(lambda call: _without(call, hidden, since)):
        nll_without, top_without = _losses(lm, ids)
    return Knockout(tuple(hidden), since, nll, nll_without, top, top_without)


def _without(call: AttentionCall, hidden: list[int], since: int) -> AttentionCall:
    """The call with a mask that hides the keys `hidden` from all queries from `since` on but their own."""
    queries, keys, device = call.query.shape[2], call.key.shape[2], call.query.device
    own = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)
    gone = torch.isin(key, torch.tensor(hidden, device=device)) & (key != own) & (own >= since)
    if call.mask is None:
        return replace(call, mask=((key <= own) & ~gone)[None, None])
    if call.mask.dtype == torch.bool:
        return replace(call, mask=call.mask & ~gone)
    return replace(call, mask=call.mask.masked_fill(gone, float("-inf")))


def _losses(lm: LanguageModel, ids: Sequence[int]) -> tuple[np.ndarray, list[tuple[int, float]]]:
    """Loss of tokens 1 ... T - 1 and the likeliest tokens after the last."""
    text = torch.tensor(ids, device=lm.device)
    with torch.inference_mode():
        logits = lm.model(input_ids=text[None], use_cache=False).logits[0]
        losses = [
            torch.nn.functional.cross_entropy(logits[start:stop].float(), text[start + 1 : stop + 1], reduction="none")
            for start, stop in _spans(len(ids) - 1)
        ]
        best = logits[-1].float().softmax(-1).topk(_TOP)
    nll = torch.cat(losses).cpu().numpy() if losses else np.zeros(0, dtype=np.float32)
    return nll, _pairs(best.indices, best.values)


def _spans(count: int) -> list[tuple[int, int]]:
    return [(start, min(start + _ROWS, count)) for start in range(0, count, _ROWS)]


def _pairs(indices: Tensor, values: Tensor) -> list[tuple[int, float]]:
    return list(zip(indices.tolist(), values.tolist(), strict=True))
