"""How long the newest keys and values are: one number a layer and token, for the cache grid."""

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import BaseQuantizedLayer, CacheLayerMixin

from kvviz.engine.cache import stored_tokens
from kvviz.engine.evicting import EvictingCache
from kvviz.engine.quantised import newest

_STACK = 32  # up to this many new tokens all layers are measured in one operation


def newest_norms(cache: DynamicCache, new: int) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the last `new` tokens' K and of their V, each float32 (layers, new), mean over KV heads.

    NaN where a layer holds no K and V of a token: a prompt longer than a sliding window, a recurrent layer.
    Rotary positions turn a key without changing its length.
    """
    if isinstance(cache, EvictingCache):
        return _evicting_norms(cache, new)
    held = {index: min(new, stored_tokens(layer)) for index, layer in enumerate(cache.layers)}
    return tuple(_norms(cache, name, new, held) for name in ("keys", "values"))


def _norms(cache: DynamicCache, name: str, new: int, held: dict[int, int]) -> np.ndarray:
    norms = np.full((len(held), new), np.nan, dtype=np.float32)
    found = {index: _newest(cache.layers[index], name, count) for index, count in held.items() if count}
    if new <= _STACK and len({(tensor.shape, tensor.device) for tensor in found.values()}) == 1:
        rows = list(found)
        norms[rows, -held[rows[0]] :] = _mean_norm(torch.stack(list(found.values())))
        return norms
    for index, tensor in found.items():
        norms[index, -held[index] :] = _mean_norm(tensor)
    return norms


def _newest(layer: CacheLayerMixin, name: str, count: int) -> Tensor:
    if isinstance(layer, BaseQuantizedLayer):
        return newest(layer, name, count)[0]
    return getattr(layer, name)[0, :, -count:]


def _evicting_norms(cache: EvictingCache, new: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all new tokens where a policy evicts, as they were before any of them went; elsewhere of what is held."""
    held = {index: min(new, stored_tokens(layer)) for index, layer in enumerate(cache.layers)}
    held |= dict.fromkeys(cache.managed, 0)
    norms = tuple(_norms(cache, name, new, held) for name in ("keys", "values"))
    for index in cache.managed:
        for array, lengths in zip(norms, cache.layers[index].take_lengths(), strict=True):
            array[index] = lengths
    return norms


def _mean_norm(vectors: Tensor) -> np.ndarray:
    """(..., kv_heads, tokens, width) -> (..., tokens)."""
    return torch.linalg.vector_norm(vectors.float(), dim=-1).mean(dim=-2).cpu().numpy()
