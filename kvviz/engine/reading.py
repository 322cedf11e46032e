"""A given text read under a policy: every layer in one go, the losses of all its tokens at the end."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.engine.cache import layer_tensors, new_cache
from kvviz.engine.evicting import EvictingCache
from kvviz.engine.forward import Feeder
from kvviz.engine.head import logits, spans
from kvviz.engine.probe import observe
from kvviz.engine.scores import AttentionCall
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy
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

    prompt: how many of them count as the prompt, for policies that evict at its end; half by default. `progress` gets
    the number of attention layers done; what it raises ends the work. Turns are given up between layers.
    Raises Refused for a policy that this model or text cannot have.
    """
    prompt = max(1, len(ids) // 2) if prompt is None else prompt
    hidden, count = [], 0
    with ExitStack() as at_work, torch.inference_mode():

        def heard(call: AttentionCall) -> None:
            nonlocal count
            count += 1
            if progress is not None:
                progress(count)
            at_work.close()
            at_work.enter_context(turn())

        at_work.enter_context(turn())
        cache = new_cache(lm.config) if isinstance(policy, Full) else EvictingCache(lm, policy, len(ids), prompt)
        feeder = Feeder(lm)
        with observe(heard), cache.at_work() if isinstance(cache, EvictingCache) else nullcontext():
            for start, stop in _pieces(cache, len(ids), piece):
                hidden.append(feeder.hidden(ids[start:stop], start, cache))
    return _reading(policy, cache, torch.cat(hidden), prompt)


def _pieces(cache: DynamicCache, count: int, piece: int) -> list[tuple[int, int]]:
    # a recurrent state is only safe to continue one token at a time
    size = count if any(cache.is_linear) else piece
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def _reading(policy: Policy | Full, cache: DynamicCache, hidden: Tensor, prompt: int) -> Reading:
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
