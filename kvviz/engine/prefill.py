"""Prefill into an empty or a filled cache, and greedy text after it, in turns with others."""

import inspect
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DummyLayer, DynamicSlidingWindowLayer

from kvviz.engine.attention import Turn
from kvviz.engine.cache import GrowingLayer, new_cache
from kvviz.engine.forward import Feeder
from kvviz.engine.stream import end_ids
from kvviz.errors import Refused
from kvviz.geometry.layers import layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.tokens import TextStream

_PLAIN = (GrowingLayer, DynamicSlidingWindowLayer, DummyLayer)


@dataclass(frozen=True, eq=False, slots=True)
class Prefill:
    """Seconds of work (waiting for a turn not counted) and float32 logits (kept, vocabulary) of the last tokens."""

    seconds: float
    logits: Tensor


def prefill(
    lm: LanguageModel,
    cache: DynamicCache,
    ids: Sequence[int],
    start: int = 0,
    *,
    keep: int = 1,
    chunk: int | None = None,
    turn: Turn = nullcontext,
) -> Prefill:
    """Feed `ids[start:]` to a cache that holds `ids[:start]`; logits of the last `keep` tokens.

    In pieces of `chunk` tokens, each in a `turn()`. A model with a recurrent state starts in one piece and goes on
    token by token.
    """
    feeder, kept, seconds = Feeder(lm), [], 0.0
    for first, last in _pieces(lm, start, len(ids), chunk):
        wanted = max(0, last - max(first, len(ids) - keep))
        with turn(), torch.inference_mode():
            begin = time.perf_counter()
            logits = feeder.logits(ids[first:last], first, cache, max(1, wanted))
            if wanted:
                kept.append(logits.float())
                logits[-1, -1].item()  # on a GPU the work is only done once something is read
            seconds += time.perf_counter() - begin
    return Prefill(seconds, torch.cat(kept))


def _pieces(lm: LanguageModel, start: int, stop: int, chunk: int | None) -> list[tuple[int, int]]:
    size = stop - start
    if not keeps_tokens(lm):
        size = 1 if start else stop
    elif chunk is not None:
        if chunk < 1:
            raise Refused("A piece of the prompt must have at least 1 token, not {value}.", value=chunk)
        size = min(chunk, size)
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


def greedy_text(
    lm: LanguageModel, cache: DynamicCache, logits: Tensor, seen: int, new: int, *, turn: Turn = nullcontext
) -> tuple[tuple[int, ...], str]:
    """Ids and text of `new` greedy tokens, fewer at an end of sequence or the model's context.

    `logits` (vocabulary,) are those of the last of `seen` tokens that the cache has been fed; the cache grows.
    """
    feeder, text, ends, chosen, said = Feeder(lm), TextStream(lm.tokenizer, seen), end_ids(lm), [], ""
    for index in range(new):
        chosen.append(int(logits.argmax()))
        said += text.push(chosen[-1])
        full = lm.context is not None and seen + index >= lm.context
        if chosen[-1] in ends or full or index + 1 == new:
            break
        with turn(), torch.inference_mode():
            logits = feeder.logits(chosen[-1:], seen + index, cache)[0]
    return tuple(chosen), said + text.rest()


def keeps_tokens(lm: LanguageModel) -> bool:
    """Whether every layer keeps K and V of single tokens alone, of all or of a window: a cache filled in any pieces.

    A recurrent state is only sure to be continued one token at a time.
    """
    return not looks_at_chunks(lm) and all(type(layer) in _PLAIN for layer in new_cache(lm.config).layers)


def looks_at_chunks(lm: LanguageModel) -> bool:
    """Whether some layer attends within chunks of the text (Llama 4)."""
    return any(shape.kind == "chunked" for shape in layer_shapes(lm.config))


def require_reuse(lm: LanguageModel, *, tokens: bool = False) -> None:
    """Raise Refused for a model that gives no cache away; with `tokens`, for one that needs more than K and V."""
    if "cache" not in inspect.signature(lm.model.forward).parameters:
        raise Refused("This model gives no cache away that a second prompt could start from. Choose another model.")
    if tokens and looks_at_chunks(lm):
        raise Refused(
            "Some layers of this model look at chunks of the text, and a chunk that has begun is only continued one "
            "token at a time, so prompts are not put together from stored parts of others. Compare two prompts "
            "instead, or choose another model."
        )
    if tokens and not keeps_tokens(lm):
        raise Refused(
            "Some layers of this model keep one running state instead of K and V of each token, so what is stored of a "
            "prompt cannot be cut where the next one differs. Compare two prompts instead, where the state is saved at "
            "exactly that place, or choose another model."
        )
