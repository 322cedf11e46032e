"""Copies of a cache, and caches that let every new token's K and V be heard or changed on their way in."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin

from kvviz.engine.cache import layer_tensors, new_cache

# (layer, position of the first new token, K, V) -> what is stored and attended to instead
Tap = Callable[[int, int, Tensor, Tensor], tuple[Tensor, Tensor]]


class TappedCache(DynamicCache):
    """A cache as `new_cache` makes it, whose new K and V, each (1, kv_heads, tokens, width), go through `tap`."""

    def __init__(self, config: PreTrainedConfig, tap: Tap) -> None:
        super().__init__(config=config)
        self.layers = new_cache(config).layers
        self._tap = tap

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Store what the tap makes of the new K and V; all that the layer's attention is to see."""
        start = self.layers[layer_idx].get_seq_length()
        changed = self._tap(layer_idx, start, key_states, value_states)
        return super().update(*changed, layer_idx, *args, **kwargs)


class Recorder:
    """A tap that keeps all K and V that pass, those that a sliding layer forgets, too."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Note the new K and V and hand them on unchanged."""
        self._pieces.setdefault(layer, []).append((keys, values))
        return keys, values

    def layers(self) -> dict[int, tuple[Tensor, Tensor]]:
        """K and V of all tokens fed, each (kv_heads, tokens, width), for the layers that have them."""
        joined = {layer: zip(*pieces, strict=True) for layer, pieces in self._pieces.items()}
        return {layer: tuple(torch.cat(part, dim=-2)[0] for part in both) for layer, both in joined.items()}


def copy_cache(cache: DynamicCache) -> DynamicCache:
    """A cache with copies of all tensors and states; what happens to one never shows in the other."""
    twin = copy.copy(cache)
    twin.layers = [_copy_layer(layer) for layer in cache.layers]
    return twin


def _copy_layer(layer: CacheLayerMixin) -> CacheLayerMixin:
    twin = copy.copy(layer)
    for name, value in vars(layer).items():
        setattr(twin, name, _copied(value))
    return twin


def _copied(value: object) -> object:
    """Tensors cloned, at any depth; a clone of a view has no more room than it shows."""
    if isinstance(value, Tensor):
        return value.clone(memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(each) for each in value)
    return value


def held_bytes(cache: DynamicCache) -> int:
    """Bytes of all that the cache holds: sum of numel x itemsize."""
    return sum(tensor.numel() * tensor.element_size() for layer in cache.layers for tensor in layer_tensors(layer))
