"""The evicting cache: transformers' own, whose full-attention layers really drop K and V after each step's attention.

Layers that slide, share or keep a state instead are left alone. Works for one token a call or for a whole text.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from kvviz.engine.cache import layer_tensors
from kvviz.engine.keeper import Keeper, gathered
from kvviz.engine.probe import ATTENTION, work
from kvviz.engine.rotation import Rotation
from kvviz.engine.scores import AttentionCall
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel
from kvviz.policies import Policy
from kvviz.records import Evicted


class EvictingLayer(DynamicLayer):
    """A full-attention layer that holds some of what it has seen: keys and values (1, kv_heads, stored, width)."""

    def __init__(self, cache: "EvictingCache") -> None:
        super().__init__()
        self._cache = cache
        self.seen = 0
        self.positions = np.zeros((0, 0), dtype=np.int64)  # (kv_heads, stored), rising
        self.norms = np.zeros((0, 0), dtype=np.float32)  # (kv_heads, new) of the keys that came last
        self._lengths: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        """Append the new tokens' K and V; what there is no room for goes after their attention, in `keep`."""
        keys, values = super().update(key_states, value_states)
        heads, new = key_states.shape[1:3]
        came = np.broadcast_to(np.arange(self.seen, self.seen + new), (heads, new))
        self.positions = np.concatenate([self.positions, came], axis=1) if self.positions.size else came
        self.norms = _norms(key_states)
        self._lengths.append((self.norms.mean(axis=0), _norms(value_states).mean(axis=0)))
        self.seen += new
        self._cache.grew(key_states.nbytes + value_states.nbytes)
        return keys, values

    def keep(self, slots: np.ndarray) -> None:
        """Only these slots, int (kv_heads, kept), stay; the others' memory is given back."""
        if slots.shape[1] == self.positions.shape[1]:
            return
        before = self.keys.nbytes + self.values.nbytes
        self.positions = np.take_along_axis(self.positions, slots, axis=1)
        self.keys = gathered(self.keys[0], slots)[None]
        self.values = gathered(self.values[0], slots)[None]
        self._cache.grew(self.keys.nbytes + self.values.nbytes - before)

    def take_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean |K| and |V| over KV heads, float32 (tokens,), of all tokens that came since this was last asked."""
        keys, values = (np.concatenate(each) for each in zip(*self._lengths, strict=True))
        self._lengths.clear()
        return keys, values

    def get_seq_length(self) -> int:
        """Tokens seen: what positions and masks of other layers count from."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """What is stored stands directly before the new tokens."""
        stored = self.positions.shape[1]
        return stored + query_length, self.seen - stored


class EvictingCache(DynamicCache):
    """A cache for one text under one policy; run the model inside `at_work()`.

    tokens: length of the whole text, which a budget given as a share refers to. prompt: its first tokens that count
    as the prompt, for policies that evict at its end.
    Raises Refused where the model or the text leaves the policy nothing to do or cannot follow it.
    """

    def __init__(self, lm: LanguageModel, policy: Policy, tokens: int, prompt: int) -> None:
        _check(lm, policy)
        super().__init__(config=lm.config)
        self.policy = policy.sized(tokens)
        self.peak_bytes = self._managed_bytes = 0
        self._others = [layer for layer in self.layers if type(layer) is not DynamicLayer]
        self.layers = [EvictingLayer(self) if type(layer) is DynamicLayer else layer for layer in self.layers]
        self.managed = [index for index, layer in enumerate(self.layers) if isinstance(layer, EvictingLayer)]
        if not self.managed:
            raise Refused(
                "{name} has no full-attention layer, and policies act on those alone. Choose another model.",
                name=lm.title,
            )
        rotation = Rotation(lm) if self.policy.positions != "original" else None
        self._keepers = {index: Keeper(self.policy, index, prompt, rotation) for index in self.managed}

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Attention of this context reads and cuts this cache."""
        with work(self._attend):
            yield

    def _attend(self, call: AttentionCall) -> Tensor | None:
        layer = self.layers[call.layer]
        if not isinstance(layer, EvictingLayer):
            return None
        mixed, slots = self._keepers[call.layer].attend(call, layer.positions, layer.norms)
        layer.keep(slots)
        return mixed

    def grew(self, by: int) -> None:
        """A managed layer holds so many bytes more or less; take down the most that all layers held at once."""
        self._managed_bytes += by
        others = sum(tensor.nbytes for layer in self._others for tensor in layer_tensors(layer))
        self.peak_bytes = max(self.peak_bytes, self._managed_bytes + others)

    def take_peak(self) -> int:
        """The most that was held since this was last asked."""
        peak, self.peak_bytes = self.peak_bytes, 0
        return peak

    def stored(self) -> int:
        """Tokens each managed layer holds; equal in all of them."""
        return self.layers[self.managed[0]].positions.shape[1]

    def take_evicted(self) -> list[Evicted]:
        """What has gone since this was last asked, in the order of layers and steps."""
        taken = [_joined(keeper.evicted) for keeper in self._keepers.values() if keeper.evicted]
        for keeper in self._keepers.values():
            keeper.evicted.clear()
        return taken


def _check(lm: LanguageModel, policy: Policy) -> None:
    if lm.model.config._attn_implementation != ATTENTION:
        raise Refused(
            "{name} computes its attention itself, so tokens cannot be evicted while it reads. Choose another model.",
            name=lm.title,
        )
    if policy.positions != "original" and getattr(lm.config, "kv_lora_rank", None):
        raise Refused(
            "{name} caches latents, whose positions cannot be turned on their own. Choose original positions.",
            name=lm.title,
        )


def _joined(evicted: list[Evicted]) -> Evicted:
    """What one layer lost in many steps, in one record."""
    return Evicted(evicted[0].layer, *(np.concatenate(arrays) for arrays in list(zip(*evicted, strict=True))[1:]))


def _norms(vectors: Tensor) -> np.ndarray:
    """(1, kv_heads, tokens, width) -> float32 (kv_heads, tokens)."""
    return torch.linalg.vector_norm(vectors[0].float(), dim=-1).cpu().numpy()
