"""A given text read under a policy: every layer in one go, the losses of all its tokens at the end."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from kvviz.engine.cache import layer_tensors, new_cache
from kvviz.engine.evicting import EvictingCache
from kvviz.engine.forward import Feeder
from kvviz.engine.head import logits, spans
from kvviz.engine.probe import observe
from kvviz.engine.quantised import quantised_cache
from kvviz.engine.scores import AttentionCall
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy, Quantised
from kvviz.records import Evicted

Turn = Callable[[], AbstractContextManager]
Progress = Callable[[int], None]

_PIECE = 4096  # tokens fed at once: what a layer's MLP holds of them is the largest thing in memory


@dataclass(frozen=True, eq=False, slots=True)
class Reading:
    """What a text became under a policy: hidden (T, width) before the head, stored (T,) tokens held after each.

    evicted: what left the managed layers, in the order of layers and steps. cache_bytes at the end, peak_bytes at the
    most.
    """

    policy: Policy | Full
    hidden: Tensor
    stored: np.ndarray
    evicted: tuple[Evicted, ...]
    managed: tuple[int, ...]
    kv_heads: int
    cache_bytes: int
    peak_bytes: int


def read(
    lm: LanguageModel,
    ids: Sequence[int],
    policy: Policy | Full,
    *,
    prompt: int | None = None,
    piece: int = _PIECE,
    progress: Progress | None = None,
    turn: Turn = nullcontext,
) -> Reading:
    """Read `ids` under `policy`, exactly as if they were fed one by one, in pieces of at most `piece` tokens.

    prompt: how many of them count as the prompt, for policies that evict at its end; half by default. A quantised cache
    reads its first tokens alone. `progress` gets the number of attention layers done; what it raises ends the work.
    Turns are given up between layers.
    Raises Refused for a policy that this model or text cannot have.
    """
    prompt = max(1, len(ids) // 2) if prompt is None else prompt
    hidden, count = [], 0
    with ExitStack() as at_work, torch.inference_mode():

        def heard(call: AttentionCall) -> None:
            nonlocal count
            count += 1
            if progress is not None:
                progress(count // len(pieces))
            at_work.close()
            at_work.enter_context(turn())

        at_work.enter_context(turn())
        cache = cache_for(lm, policy, len(ids), prompt)
        pieces = _pieces(cache, len(ids), piece, policy.first if isinstance(policy, Quantised) else piece)
        feeder = Feeder(lm)
        with observe(heard), cache.at_work() if isinstance(cache, EvictingCache) else nullcontext():
            for start, stop in pieces:
                hidden.append(feeder.hidden(ids[start:stop], start, cache))
    return _reading(policy, cache, torch.cat(hidden), prompt)


def cache_for(lm: LanguageModel, policy: Policy | Full, tokens: int, prompt: int) -> Cache:
    """An empty cache under a policy, for `tokens` tokens of which the first `prompt` count as the prompt.

    Raises Refused for a policy that this model or text cannot have.
    """
    if isinstance(policy, Quantised):
        return quantised_cache(lm, policy)
    return new_cache(lm.config) if isinstance(policy, Full) else EvictingCache(lm, policy, tokens, prompt)


def _pieces(cache: Cache, count: int, piece: int, first: int) -> list[tuple[int, int]]:
    if any(cache.is_linear):  # a recurrent state is only safe to continue one token at a time
        return [(0, count)]
    edges = [0, *range(min(first, piece, count), count, piece), count]
    return list(pairwise(edges))


def _reading(policy: Policy | Full, cache: Cache, hidden: Tensor, prompt: int) -> Reading:
    held = sum(tensor.nbytes for layer in cache.layers for tensor in layer_tensors(layer))
    positions = np.arange(1, len(hidden) + 1)
    if not isinstance(cache, EvictingCache):
        return Reading(policy, hidden, positions, (), (), 0, held, held)
    return Reading(
        policy=cache.policy,
        hidden=hidden,
        stored=cache.policy.places(positions, prompt),
        evicted=tuple(cache.take_evicted()),
        managed=tuple(cache.managed),
        kv_heads=cache.layers[cache.managed[0]].positions.shape[0],
        cache_bytes=held,
        peak_bytes=cache.peak_bytes,
    )


def losses(lm: LanguageModel, ids: Sequence[int], readings: Sequence[Reading]) -> tuple[np.ndarray, np.ndarray]:
    """Loss of tokens 1 ... T - 1 in each reading, and how far it is from the first reading.

    Both float32 (readings, T - 1) in nats: -log p(token), and KL(first || reading) of the whole distributions.
    """
    text = torch.tensor(list(ids), device=lm.device)
    nll = np.zeros((len(readings), max(0, len(ids) - 1)), dtype=np.float32)
    kl = np.zeros_like(nll)
    for start, stop in spans(len(ids) - 1):
        first = None
        for row, reading in enumerate(readings):
            logs = logits(lm.model, reading.hidden[start:stop]).log_softmax(dim=-1)
            nll[row, start:stop] = -logs.gather(1, text[start + 1 : stop + 1, None])[:, 0].cpu().numpy()
            if first is None:
                first = logs
            else:
                kl[row, start:stop] = (first.exp() * (first - logs)).sum(dim=-1).clamp(min=0).cpu().numpy()
    return nll, kl
