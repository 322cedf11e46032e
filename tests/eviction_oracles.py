"""What runs of the evicting cache are compared with: a dense run with masks, and a plain cache cut by hand."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.engine.evicting import EvictingCache, EvictingLayer
from kvviz.engine.probe import work
from kvviz.engine.scores import AttentionCall
from kvviz.models.loading import LanguageModel
from kvviz.policies import NEVER, Policy
from kvviz.records import Evicted

Gone = dict[int, np.ndarray]  # layer -> (kv_heads, tokens): the position after which each token went, NEVER if it stays


@dataclass(frozen=True, eq=False)
class Run:
    """A text under a policy: logits (tokens, vocabulary), what went, and the cache as it was left."""

    logits: Tensor
    evicted: list[Evicted]
    gone: Gone
    stored: list[list[int]]  # after each call, of each managed layer: the length of its key tensor
    cache: EvictingCache


def run(
    lm: LanguageModel, policy: Policy, ids: list[int], *, piece: int, prompt: int | None = None, places: bool = True
) -> Run:
    """Feed `ids` in pieces; without `places` the model chooses the positions itself."""
    cache = EvictingCache(lm, policy, len(ids), prompt or max(1, len(ids) // 2))
    logits, evicted, stored = [], [], []
    with torch.inference_mode(), cache.at_work():
        for start in range(0, len(ids), piece):
            part = torch.tensor([ids[start : start + piece]])
            at = {"position_ids": torch.arange(start, start + part.shape[1])[None]} if places else {}
            logits.append(lm.model(part, cache=cache, use_cache=True, **at).logits[0])
            evicted += cache.take_evicted()
            stored.append([cache.layers[layer].keys.shape[2] for layer in cache.managed])
    return Run(torch.cat(logits), evicted, _gone(cache, evicted, len(ids)), stored, cache)


def _gone(cache: EvictingCache, evicted: list[Evicted], tokens: int) -> Gone:
    heads = {layer: cache.layers[layer].keys.shape[1] for layer in cache.managed}
    gone = {layer: np.full((count, tokens), NEVER, dtype=np.int64) for layer, count in heads.items()}
    for each in evicted:
        table = gone[each.layer]
        assert (table[each.head, each.position] == NEVER).all(), "a token went twice"
        table[each.head, each.position] = each.after
    return gone


def kept(gone: np.ndarray, head: int, now: int) -> list[int]:
    """Positions a head holds after the step at `now`."""
    return [position for position in range(now + 1) if gone[head, position] > now]


@dataclass(frozen=True, eq=False)
class Dense:
    """One forward over a whole text: logits, and per layer weights (heads, queries, keys) and keys, in float64."""

    logits: Tensor
    weights: dict[int, np.ndarray]
    keys: dict[int, np.ndarray]


def dense(lm: LanguageModel, ids: list[int], gone: Gone) -> Dense:
    """No cache, no policy: keys are hidden from all queries after the position at which they went."""
    weights, keys = {}, {}

    def attention(call: AttentionCall) -> Tensor:
        each, mixed = _attention(call, gone.get(call.layer))
        weights[call.layer], keys[call.layer] = each.numpy(), call.key[0].double().numpy()
        return mixed.transpose(0, 1)[None].to(call.value.dtype)

    with torch.inference_mode(), work(attention):
        logits = lm.model(torch.tensor([ids]), use_cache=False).logits[0]
    return Dense(logits, weights, keys)


def _attention(call: AttentionCall, gone: np.ndarray | None) -> tuple[Tensor, Tensor]:
    """Weights and what they mix, written as the formula is, in float64."""
    heads, tokens, width = call.query.shape[1:]
    key, value = (each[0].double().repeat_interleave(heads // each.shape[1], dim=0) for each in (call.key, call.value))
    scores = call.query[0].double() @ key.transpose(1, 2) * (call.options.get("scaling") or width**-0.5)
    if (cap := call.options.get("softcap")) is not None:
        scores = cap * (scores / cap).tanh()
    look = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if call.mask is not None:
        look = look & call.mask[0, 0]
    if gone is not None:
        there = torch.from_numpy(gone)[:, None, :] >= torch.arange(tokens)[:, None]
        look = look & there.repeat_interleave(heads // len(gone), dim=0)
    powers = scores.exp() * look
    total = powers.sum(-1, keepdim=True)
    if (sink := call.options.get("s_aux")) is not None:
        total = total + sink.double().exp().view(heads, 1, 1)
    weights = powers / total
    return weights, weights @ value


def naive(lm: LanguageModel, ids: list[int], gone: Gone) -> Tensor:
    """Transformers' own cache, cut by hand after each token; the model takes its length for the position."""
    cache, logits = DynamicCache(config=lm.config), []
    held = {layer: [[] for _ in table] for layer, table in gone.items()}
    with torch.inference_mode():
        for now, token in enumerate(ids):
            logits.append(lm.model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0])
            for layer, heads in held.items():
                slots = []
                for head, positions in enumerate(heads):
                    positions.append(now)
                    slots.append([slot for slot, at in enumerate(positions) if gone[layer][head, at] > now])
                    heads[head] = [positions[slot] for slot in slots[-1]]
                _cut(cache.layers[layer], slots)
    return torch.cat(logits)


def _cut(layer: object, slots: list[list[int]]) -> None:
    rows = range(len(slots))
    for name in ("keys", "values"):
        tensor = getattr(layer, name)
        setattr(layer, name, torch.stack([tensor[0, head, slots[head]] for head in rows])[None])


def managed(cache: EvictingCache) -> list[EvictingLayer]:
    """The layers that evict."""
    return [cache.layers[layer] for layer in cache.managed]


def gap(one: Tensor, other: Tensor) -> float:
    """Largest difference of two sets of logits, as a share of how much the second ones vary."""
    return float((one - other).abs().max() / other.std())
